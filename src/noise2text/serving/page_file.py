"""The files that `noise2text page` writes: the page with its data, or an animated picture of the first text.

The page is one HTML file. Its style, scripts and data are inside it, and its content security policy forbids
every request to other hosts. Without data, it asks the service that serves it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.serving.animation import draw_animation
from noise2text.serving.page_data import PageData

__all__ = ["find_page_format", "write_html"]

PARTS = Path(__file__).with_name("page")
PART_NAMES = ("page.css", "view.js", "picture.js", "gif.js", "page.js", "event_stream.js", "live.js")
NO_DATA = '<script type="application/json" id="data">null</script>'


def find_page_format(path: Path) -> Callable[[PageData], str]:
    """The function that turns data into the content of this file."""
    if path.suffix not in FORMATS:
        raise Problem(f"{path} must end in {' or '.join(FORMATS)}: choose such a name for --out.")
    return FORMATS[path.suffix]


def write_html(data: PageData | None = None) -> str:
    """The page with these data; without any, the page that asks its service."""
    page = _read_part("page.html")
    for name in PART_NAMES:
        page = page.replace(f"/* {name} */", f"\n{_read_part(name)}")
    if data is None:
        return page
    text = json.dumps(data.as_json(), ensure_ascii=False, separators=(",", ":"))
    return page.replace(NO_DATA, NO_DATA.replace("null", text.replace("<", "\\u003c")))


def draw_first(data: PageData) -> str:
    """The animated SVG of the first text and the first model."""
    return draw_animation(data.inputs[0][0])


def _read_part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


FORMATS: dict[str, Callable[[PageData], str]] = {".html": write_html, ".svg": draw_first}
