"""The web application: routes, middlewares, and errors as one sentence in {"error": …}."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from noise2text.core.errors import Problem
from noise2text.core.version import __version__
from noise2text.serving import generate_routes, libretranslate, page_routes
from noise2text.serving.answer_log import AnswerLog
from noise2text.serving.body_limit import BodyLimit
from noise2text.serving.generate_routes import get_service
from noise2text.serving.model_cache import UnknownModel
from noise2text.serving.schema import ErrorAnswer, Status
from noise2text.serving.service import Refused, Service

__all__ = ["build_app"]


def build_app(service: Service, *, allow_origins: Sequence[str] = ()) -> FastAPI:
    """The application of a service; pages of other origins may call it only if they are listed."""
    app = FastAPI(
        title="noise2text",
        version=__version__,
        description="Diffusion models that turn texts into texts.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(generate_routes.router)
    app.include_router(libretranslate.router)
    app.include_router(page_routes.router)
    app.add_api_route("/metrics", metrics, response_class=Response, summary="What Prometheus reads")
    app.add_api_route("/healthz", healthz, response_model=Status, summary="Whether the process lives")
    app.add_api_route(
        "/readyz",
        readyz,
        response_model=Status,
        responses={503: {"model": ErrorAnswer}},
        summary="Whether requests are accepted",
    )
    app.add_middleware(BodyLimit, max_bytes=service.pool.limits.body_bytes)
    if allow_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(allow_origins), allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(AnswerLog, metrics=service.metrics)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return app


async def metrics(request: Request) -> Response:
    """Counts and times in the text format of Prometheus."""
    return Response(get_service(request).metrics.text(), media_type="text/plain; version=0.0.4")


async def healthz() -> Status:
    """Always ok."""
    return Status(status="ok")


async def readyz(request: Request) -> Status:
    """Ok while the service accepts requests."""
    if get_service(request).pool.is_closed:
        raise Refused(503, "The service is ending.", retry_after=5)
    return Status(status="ok")


_NOT_JSON = "The body is not valid JSON."


def _answer_refusal(request: Request, error: Any) -> JSONResponse:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": str(error)}, error.status, headers=headers)


def _answer_problem(request: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownModel) else 422)


def _answer_invalid(request: Request, error: Any) -> JSONResponse:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return JSONResponse({"error": _NOT_JSON}, 400)
    place = ".".join(map(str, first["loc"][1:])) or "body"
    return JSONResponse({"error": f"The request is not valid: {place}: {first['msg']}."}, 422)


def _answer_http_error(request: Request, error: Any) -> JSONResponse:
    """Unknown routes and methods; FastAPI also raises this for a body that is not even text."""
    hint = "GET /openapi.json lists what there is"
    sentence = _NOT_JSON if error.status_code == 400 else f"{error.detail}: {hint}."
    return JSONResponse({"error": sentence}, error.status_code, headers=error.headers)


_HANDLERS: dict[Any, Any] = {
    Refused: _answer_refusal,
    Problem: _answer_problem,
    RequestValidationError: _answer_invalid,
    HTTPException: _answer_http_error,
}
