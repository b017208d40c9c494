"""A real browser: Chromium of the system, without any request to other hosts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

__all__ = ["WHERE", "find_violations", "needs_browser", "open_browser", "open_page"]

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
needs_browser = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: install it to look at pages")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
WHERE = "#where"


@contextmanager
def open_browser() -> Iterator[Browser]:
    """The browser, closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def open_page(
    browser: Browser, address: str, *, width: int = 1200, theme: Any = "light", expected_error: str = "none"
) -> Iterator[Page]:
    """The page at this address; afterwards it must have asked no other host and logged no other error."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
    )
    page, requested, errors = context.new_page(), [], []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(address)
    yield page
    context.close()
    origin = "/".join(address.split("/")[:3])
    assert [url for url in requested if not url.startswith((origin, "blob:", "data:"))] == []
    assert [error for error in errors if expected_error not in error] == []


def find_violations(page: Page) -> list[str]:
    """What the accessibility checker axe finds wrong with the page as it is now."""
    from axe_playwright_python.sync_playwright import Axe

    response = Axe().run(page).response
    return [
        f"{violation['id']}: {node['html']}"
        for violation in response["violations"]
        for node in violation["nodes"]
    ]
