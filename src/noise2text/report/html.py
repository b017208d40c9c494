"""Markup that cannot be broken by what it shows.

Whatever is set into a page is escaped unless it is Html, and only the functions here make Html. Texts of
corpora and models find their own direction (dir="auto"), so that right-to-left ones are read as such. Wide
tables scroll within the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Html", "Section", "details", "element", "html", "join_html", "note", "table", "text"]


class Html(str):
    """A string that is markup already."""


@dataclass(frozen=True)
class Section:
    """A part of a page: its anchor, its heading and what stands below it."""

    name: str
    title: str
    body: Html


CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
"""Control characters, which a page must not hold, and the characters that picture them."""


def html(value: object) -> Html:
    """The value as markup: escaped, unless it is markup."""
    if isinstance(value, Html):
        return value
    plain = str(value).encode("utf-8", "replace").decode("utf-8")  # a file's name may hold half a character
    return Html(escape(plain.translate(CONTROLS)))


def join_html(*parts: object) -> Html:
    """All parts after each other."""
    return Html("".join(map(html, parts)))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """An element; class_="n" and aria_label="…" are the attributes class and aria-label, none is left out."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    shown = "".join(f' {key}="{html(value)}"' for key, value in named.items() if value is not None)
    return Html(f"<{tag}{shown}>{join_html(*children)}</{tag}>")


def text(value: str) -> Html:
    """A text of a corpus or a model; an empty one is said to be empty, and blanks alone can be seen."""
    if not value:
        return element("i", "empty", class_="quiet")
    value = value if value.strip() else "␣" * len(value)
    return element("span", value, dir="auto", class_="text")


def note(line: object) -> Html:
    """A line about the page itself."""
    return element("p", line, class_="quiet")


def details(summary: object, *body: object) -> Html:
    """What is shown when its summary is clicked on; no script is needed."""
    return element("details", element("summary", summary), *body)


def table(head: Sequence[object], rows: Iterable[Sequence[object]], *, label: str) -> Html:
    """A table that scrolls within the page; the first column names its rows."""
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
