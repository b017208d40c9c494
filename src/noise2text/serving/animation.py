"""Noise becoming text, as an animated SVG: one row per step, one column per token.

    step 1    noise     noise   noise    …     the row of the first step appears first
    …
    step 20   Where     is      the      …     a token that has reached its final form is filled

A cell is filled as soon as its position holds the final token, more strongly the more confident the model
is, and underlined by as much of its width. CSS moves it, without a script, so a page can show it as an image.
It follows the viewer's dark mode, and stands still for viewers who asked for less motion.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from noise2text.core.errors import Problem
from noise2text.report.html import Html, element, join_html
from noise2text.serving.result import StepResult, TextResult, keep_steps

__all__ = ["draw_animation"]

ROWS = 12  # steps that are shown
CHARACTER, PADDING = 8.0, 10.0  # widths in pixels: of a monospaced character of 13 pixels, and beside a token
ROW, LABEL, MARGIN, HEADER = 30.0, 62.0, 20.0, 62.0  # heights of a row and the header, widths of the rest
MAX_CHARACTERS = 12  # of a token; the rest is cut
SECONDS_PER_ROW, SECONDS_AT_END = 0.45, 3.5

STYLE = """
svg { --ink: #1d2129; --quiet: #667080; --paper: #fdfdfc; --line: #d8dade; --sure: #3f9a6b; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e8eaee; --quiet: #98a1ae; --paper: #16181c; --line: #3a3f47; --sure: #3c9367; }
}
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: var(--ink); white-space: pre; }
.paper { fill: var(--paper); stroke: var(--line); }
.quiet, .noise { fill: var(--quiet); }
.source { font-size: 15px; }
.cell, .bar { fill: var(--sure); }
.final text { font-weight: 700; }
"""


def draw_animation(result: TextResult) -> str:
    """The SVG of one traced result."""
    if not result.steps:
        raise Problem(f"There are no steps to draw for {result.source!r}: give a text that is not empty.")
    steps = keep_steps(result, ROWS).steps
    widths = _column_widths([_shown_tokens(step, steps[-1]) for step in steps])
    width = 2 * MARGIN + LABEL + sum(widths)
    height = HEADER + ROW * len(steps) + MARGIN
    numbers = {id(step): number for number, step in enumerate(result.steps, 1)}
    rows = [_draw_row(step, numbers[id(step)], at, steps[-1], widths) for at, step in enumerate(steps)]
    paper = element("rect", class_="paper", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=8)
    source = element("text", result.source, class_="source", x=MARGIN, y=38)
    body = join_html(
        element("title", f"Noise becomes text: {result.source} → {result.text}"),
        element("style", Html(STYLE + _motion(len(steps)))),
        paper,
        source,
        *rows,
    )
    return f"{element('svg', body, **_root_attributes(width, height))}\n"


def _root_attributes(width: float, height: float) -> dict[str, object]:
    return {
        "xmlns": "http://www.w3.org/2000/svg",
        "width": f"{width:g}",
        "height": f"{height:g}",
        "viewBox": f"0 0 {width:g} {height:g}",
        "role": "img",
    }


def _motion(rows: int) -> str:
    """The style that lets the rows appear one after another, and starts again after a pause."""
    total = rows * SECONDS_PER_ROW + SECONDS_AT_END
    frames = [
        f"@keyframes appear-{at} {{ 0%, {100 * at * SECONDS_PER_ROW / total:.2f}% {{ opacity: 0 }} "
        f"{100 * (at * SECONDS_PER_ROW + 0.3) / total:.2f}%, 100% {{ opacity: 1 }} }}\n"
        f".row-{at} {{ animation-name: appear-{at} }}"
        for at in range(rows)
    ]
    motion = f".row {{ opacity: 0; animation: {total:g}s ease-out infinite }}"
    return "\n".join(["@media (prefers-reduced-motion: no-preference) {", motion, *frames, "}\n"])


def _shown_tokens(step: StepResult, last: StepResult) -> list[str]:
    """The noisy tokens; those of the text in the last row."""
    return last.tokens if step is last else step.noisy_tokens


def _column_widths(rows: Sequence[Sequence[str]]) -> list[float]:
    columns = zip_longest(*rows, fillvalue="")
    return [max(2, *(len(_label(token)) for token in column)) * CHARACTER + 2 * PADDING for column in columns]


def _draw_row(step: StepResult, number: int, at: int, last: StepResult, widths: Sequence[float]) -> Html:
    """One step: its number, and the token at each position."""
    y = HEADER + at * ROW
    cells: list[Html] = [element("text", f"step {number}", class_="quiet", x=MARGIN, y=f"{y + 19:g}")]
    x = MARGIN + LABEL
    for position, token in enumerate(_shown_tokens(step, last)):
        is_final = last.tokens[position : position + 1] == [token]
        confidence = step.confidence[position] if position < len(step.confidence) else None
        text = _draw_text(token, x, y, is_final=is_final)
        cells.append(join_html(_draw_cell(confidence, x, y, widths[position]), text) if is_final else text)
        x += widths[position]
    return element("g", *cells, class_=f"row row-{at}" + (" final" if step is last else ""))


def _draw_text(token: str, x: float, y: float, *, is_final: bool) -> Html:
    kind = None if is_final else "noise"
    return element("text", _label(token), class_=kind, x=f"{x + PADDING:g}", y=f"{y + 19:g}")


def _draw_cell(confidence: float | None, x: float, y: float, width: float) -> Html:
    """The filled cell of a final token, underlined by its confidence if the model has one."""
    cell = element(
        "rect",
        class_="cell",
        width=f"{width - 4:g}",
        fill_opacity=f"{0.4 * (0.5 if confidence is None else confidence):.2f}",
        x=f"{x + 2:g}",
        y=f"{y + 2:g}",
        rx=4,
        height=f"{ROW - 4:g}",
    )
    if confidence is None:
        return cell
    length = f"{(width - 2 * PADDING) * confidence:.1f}"
    bar = element("rect", class_="bar", x=f"{x + PADDING:g}", y=f"{y + ROW - 7:g}", width=length, height=2)
    return join_html(cell, bar)


def _label(token: str) -> str:
    """The token without its space, cut if it is long."""
    plain = token.strip() or "␣"
    return plain if len(plain) <= MAX_CHARACTERS else plain[: MAX_CHARACTERS - 1] + "…"
