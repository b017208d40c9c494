"""Findings as figures of an HTML page: the inline SVG, and its numbers below.

In matplotlib's SVG files ids repeat and there is metadata. Inside a page, ids need a prefix, and what a
browser does not draw is removed. The background becomes transparent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from noise2text.analysis.finding import Finding, to_svg
from noise2text.report.html import Html, details, element, html, note, table, text

__all__ = ["figure", "figures", "inline"]

OPEN_ROWS = 12  # a longer table without a figure is folded
MAX_ROWS = 100  # a longer table is left out


def inline(svg: str, *, prefix: str, label: str) -> Html:
    """An SVG file as an HTML element whose ids start with the prefix; the label is its accessible name."""
    drawn = svg[svg.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", drawn, count=2)
    drawn = re.sub(r'\bid="', f'id="{prefix}-', drawn)
    drawn = re.sub(r'(?:xlink:)?href="#', f'href="#{prefix}-', drawn)
    drawn = drawn.replace("url(#", f"url(#{prefix}-").replace("fill: #ffffff", "fill: none")
    return Html(drawn.replace("<svg", f'<svg role="img" aria-label="{html(label)}"', 1).strip())


def figure(finding: Finding, *, prefix: str) -> Html:
    """The figure with its title and signature; without a figure, the table."""
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
    """The figures, side by side if there is room, each with its own ids."""
    numbered = enumerate(findings, start=1)
    shown = (figure(each, prefix=f"{prefix}-{number}") for number, each in numbered)
    return element("div", *shown, class_="figures")


def _below(finding: Finding) -> Html:
    count = len(finding.rows)
    if count > MAX_ROWS:
        return note(f"The {count:,} rows are too many for this page; noise2text analyse writes them as CSV.")
    return details(f"The numbers ({count} rows)", _numbers(finding))


def _numbers(finding: Finding) -> Html:
    rows = [[_value(row.get(column)) for column in finding.columns] for row in finding.rows]
    return table([column.replace("_", " ") for column in finding.columns], rows, label=finding.title)


def _value(value: float | int | str | None) -> object:
    return text(value) if isinstance(value, str) else value
