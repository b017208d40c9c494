"""A self-contained page of sections: no script, font, image or style is fetched."""

from __future__ import annotations

from collections.abc import Sequence

from noise2text.report.html import Html, Section, element, join_html
from noise2text.report.style import STYLE

__all__ = ["page"]


def page(title: str, lead: Html, sections: Sequence[Section]) -> str:
    """The HTML of the page; the same bytes for the same sections."""
    links = [element("li", element("a", each.title, href=f"#{each.name}")) for each in sections]
    bodies = [
        element("section", element("h2", each.title, id=each.name), each.body, "\n") for each in sections
    ]
    head = join_html(
        Html(
            '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        ),
        element("title", title),
        element("style", Html(STYLE)),
    )
    contents = element("nav", element("ul", *links), aria_label="Contents")
    body = join_html(element("header", element("h1", title), lead, contents), "\n", element("main", *bodies))
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}</head>\n<body>\n{body}\n</body>\n</html>\n'
