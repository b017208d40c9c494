"""Generated texts as HTML for a notebook: the denoising with a slider over its steps, and the candidates.

The HTML is whole by itself: it requests nothing, escapes every text, and takes its colors from the page, so
that it is readable in light and dark themes. Where a notebook does not run the one line of script of the
slider, the last step and the candidates are still shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noise2text.models.output import TextOutput, TraceStep

__all__ = ["MAX_SHOWN", "render_outputs"]

MAX_SHOWN = 20
"""How many inputs a notebook shows of an output."""


def render_outputs(outputs: Iterable[TextOutput], *, total: int) -> str:
    """HTML that shows the first outputs of `total`: the steps with a slider, and the candidates."""
    shown = [_render_output(output) for output, _ in zip(outputs, range(MAX_SHOWN), strict=False)]
    more = f"<p>… and {total - len(shown):,} more</p>" if total > len(shown) else ""
    return f'<div style="color:inherit;background:transparent;max-width:60em">{"".join(shown)}{more}</div>'


def _render_output(output: TextOutput) -> str:
    head = f'<p style="font-size:1.15em;margin:.6em 0 .3em"><b>{escape(output.text)}</b></p>'
    others = "".join(f"<li>{escape(text)}</li>" for text in output.alternatives[1:])
    ranked = f'<ol start="2" style="margin:.2em 0 .6em">{others}</ol>' if others else ""
    return f"<section>{head}{ranked}{_render_trace(output.trace)}{_render_candidates(output)}</section>"


def _render_trace(trace: Sequence[TraceStep]) -> str:
    """A slider over the steps, each with its canvas and its estimate; at first it shows the last one."""
    if not trace:
        return ""
    last = len(trace) - 1
    steps = "".join(
        f'<div{"" if number == last else " hidden"}><code style="color:inherit;background:transparent">'
        f't={step.time:.3f}</code> <span style="opacity:.6">{escape(step.noisy)}</span><br>'
        f"→ {escape(step.text)}</div>"
        for number, step in enumerate(trace)
    )
    show = "Array.from(this.parentNode.nextSibling.children).forEach((e,i)=>{e.hidden=i!=this.value})"
    slider = (
        f'<input type="range" min="0" max="{last}" value="{last}" style="width:100%" '
        f'aria-label="denoising step" oninput="{escape(show)}">'
    )
    return f'<div><div>{slider}</div><div style="min-height:3.2em">{steps}</div></div>'


def _render_candidates(output: TextOutput) -> str:
    """A table of the candidates, best score first; the selected one is bold."""
    if not output.candidates:
        return ""
    rows = sorted(
        zip(output.candidates, output.scores, output.lengths, range(len(output.candidates)), strict=True),
        key=lambda row: (row[3] != output.chosen, -row[1] if math.isfinite(row[1]) else math.inf),
    )
    cell = 'style="text-align:left;padding:.1em .8em .1em 0;border-bottom:1px solid rgba(128,128,128,.35)"'
    body = "".join(
        f"<tr><td {cell}>{_emphasize(text, index == output.chosen)}</td>"
        f"<td {cell}>{score:.3f}</td><td {cell}>{length}</td></tr>"
        for text, score, length, index in rows
    )
    head = "".join(f"<th {cell}>{name}</th>" for name in ("candidate", "score", "tokens"))
    summary = f"<summary>{len(rows)} candidates</summary>"
    table = f'<table style="border-collapse:collapse;color:inherit"><tr>{head}</tr>{body}</table>'
    return f"<details>{summary}{table}</details>"


def _emphasize(text: str, is_chosen: bool) -> str:
    return f"<b>{escape(text)}</b> ✓" if is_chosen else escape(text)
