"""Findings as figures of a page: the picture is part of the page, its numbers stand under it.

matplotlib's SVG files name their parts alike and tell whence they come. Set into a page, names need a prefix,
and what a browser does not draw is taken out. The paper of the picture becomes the page's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from noise2text.analysis.finding import Finding, to_svg
from noise2text.report.html import Html, details, element, html, join_html, note, table, text

__all__ = ["figure", "figures", "inline"]

OPEN_ROWS = 12  # of a table that stands alone and is open at once
MOST_ROWS = 100  # of a table under a picture; longer ones are for files


def inline(svg: str, *, prefix: str, label: str) -> Html:
    """An SVG file as an element of a page, whose ids begin with the prefix; the label is its name."""
    drawn = svg[svg.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", drawn, count=2)
    drawn = re.sub(r'\bid="', f'id="{prefix}-', drawn)
    drawn = re.sub(r'(?:xlink:)?href="#', f'href="#{prefix}-', drawn)
    drawn = drawn.replace("url(#", f"url(#{prefix}-").replace("fill: #ffffff", "fill: none")
    return Html(drawn.replace("<svg", f'<svg role="img" aria-label="{html(label)}"', 1).strip())


def figure(finding: Finding, *, prefix: str) -> Html:
    """The picture, what it shows and how it was made; without a picture, the table."""
    svg = to_svg(finding)
    paper_figure = f" After {finding.paper_figure}." if finding.paper_figure else ""
    caption = element(
        "figcaption", element("b", f"{finding.title}."), paper_figure, element("code", finding.signature)
    )
    if svg is None:
        shown = _numbers(finding) if len(finding.rows) <= OPEN_ROWS else _below(finding)
        return element("figure", shown, caption)
    shown = inline(svg, prefix=prefix, label=finding.title)
    return element("figure", shown, caption, _below(finding))


def figures(findings: Sequence[Finding], *, prefix: str) -> Html:
    """The figures side by side where there is room; each has ids of its own."""
    numbered = enumerate(findings, start=1)
    shown = (figure(each, prefix=f"{prefix}-{number}") for number, each in numbered)
    return element("div", *shown, class_="figures")


def _below(finding: Finding) -> Html:
    count = len(finding.rows)
    if count > MOST_ROWS:
        return note(f"Its {count:,} rows are too many for this page; noise2text analyse writes them as CSV.")
    return details(f"The numbers ({count} rows)", _numbers(finding))


def _numbers(finding: Finding) -> Html:
    columns = list(dict.fromkeys(column for row in finding.rows for column in row))
    rows = [[_value(row.get(column)) for column in columns] for row in finding.rows]
    return join_html(table([column.replace("_", " ") for column in columns], rows, label=finding.title))


def _value(value: float | int | str | None) -> object:
    return text(value) if isinstance(value, str) else value
