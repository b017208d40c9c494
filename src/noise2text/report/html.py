"""HTML elements that are safe for any content.

Everything is escaped unless it is Html, and only the functions here make Html. Texts of corpora and models
have dir="auto", so that right-to-left texts are shown correctly. Wide tables scroll inside the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from noise2text.report.style import STYLE

__all__ = [
    "Html",
    "Section",
    "build_page",
    "details",
    "element",
    "html",
    "join_html",
    "note",
    "radio",
    "table",
    "text",
]


class Html(str):
    """A string that is HTML and needs no escaping."""


@dataclass(frozen=True)
class Section:
    """A section of a page: its anchor, heading and body."""

    name: str
    title: str
    body: Html


CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
"""Control characters, which HTML must not contain, and the visible characters for them."""


def html(value: object) -> Html:
    """The value as HTML, escaped unless it is Html already."""
    if isinstance(value, Html):
        return value
    plain = str(value).encode("utf-8", "replace").decode("utf-8")  # a file name may contain a lone surrogate
    return Html(escape(plain.translate(CONTROLS)))


def join_html(*parts: object) -> Html:
    """The parts, one after another."""
    return Html("".join(map(html, parts)))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """An element; class_="n" and aria_label="…" become class and aria-label, None leaves an attribute out."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    shown = "".join(f' {key}="{html(value)}"' for key, value in named.items() if value is not None)
    return Html(f"<{tag}{shown}>{join_html(*children)}</{tag}>")


def radio(group: str, number: int, *, checked: bool) -> Html:
    """A radio button with an id of its own; the buttons of a group are one choice."""
    mark = " checked" if checked else ""
    return Html(f'<input type="radio" name="{html(group)}" id="{html(f"{group}-{number}")}"{mark}>')


def text(value: str) -> Html:
    """A text of a corpus or a model; an empty text and blanks are made visible."""
    if not value:
        return element("i", "empty", class_="quiet")
    value = value if value.strip() else "␣" * len(value)
    return element("span", value, dir="auto", class_="text")


def note(line: object) -> Html:
    """A line of explanation."""
    return element("p", line, class_="quiet")


def details(summary: object, *body: object) -> Html:
    """Content that opens when its summary is clicked, without a script."""
    return element("details", element("summary", summary), *body)


def table(head: Sequence[object], rows: Iterable[Sequence[object]], *, label: str) -> Html:
    """A table that scrolls inside the page; the first column has the row headers."""
    header = element("tr", *(element("th", each, scope="col") for each in head))
    body = [element("tr", _heading(row[0]), *map(_cell, row[1:])) for row in rows]
    whole = element("table", element("thead", header), element("tbody", *body))
    return element("div", whole, class_="scroll", role="region", tabindex="0", aria_label=label)


def _heading(value: object) -> Html:
    return element("th", _shown(value), scope="row")


def _cell(value: object) -> Html:
    return element("td", _shown(value), class_="number" if isinstance(value, int | float) else None)


def _shown(value: object) -> object:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else value


def build_page(title: str, lead: Html, sections: Sequence[Section]) -> str:
    """The HTML of a self-contained page, which fetches no script, font, image or style.

    The same sections give the same bytes.
    """
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
