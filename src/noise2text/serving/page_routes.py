"""The page of the service: noise becoming text, at /."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from noise2text.serving.page_file import write_html

__all__ = ["router"]

router = APIRouter()


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
async def show_page() -> str:
    """The page, which asks this service."""
    return write_html()
