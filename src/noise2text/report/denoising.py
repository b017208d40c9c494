"""The denoising of the first texts, step by step, for each run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from noise2text.analysis.finding import ResultRow
from noise2text.analysis.traces import trace_table
from noise2text.report.html import Html, Section, element, join_html, note, table, text
from noise2text.report.report_data import TRACED_SENTENCES, ReportData

__all__ = ["denoising"]

SHOWN_STEPS = 6


def denoising(data: ReportData) -> Section:
    """The source, the reference and the steps of each run, for the first sentences."""
    pairs = data.pairs[:TRACED_SENTENCES]
    outputs = {each.name: each.output for each in data.runs}
    signature = f"seed:{data.config.seed}|shown_steps:{SHOWN_STEPS}|time:1 is noise, 0 is text"
    found = trace_table(pairs, outputs, shown_steps=SHOWN_STEPS, signature=signature)
    about = (
        "At each time (1 is noise, 0 is text): the canvas, rounded to the nearest tokens, and the model's "
        "estimate of the text. For autoregressive models both are the tokens so far."
    )
    shown = [_sentence(list(rows)) for _, rows in groupby(found.rows, key=lambda row: row["sentence"])]
    paper_figure = element(
        "p", f"After {found.paper_figure}. ", element("code", found.signature), class_="quiet"
    )
    return Section("traces", "Denoising", join_html(note(about), *shown, paper_figure))


def _sentence(rows: list[ResultRow]) -> Html:
    first = rows[0]
    heading = element("h3", text(str(first["source"])))
    reference = element("p", "Reference: ", text(str(first["reference"])))
    tables = [_steps_table(str(name), own) for name, own in groupby(rows, key=lambda row: row["system"])]
    return join_html(heading, reference, element("div", *tables, class_="figures"))


def _steps_table(name: str, rows: Iterable[ResultRow]) -> Html:
    """The steps, and in the last row the selected text."""
    lines: list[list[object]] = []
    for row in rows:
        if row["time"] is None:
            lines.append(["selected", "", element("b", text(str(row["text"])))])
        else:
            lines.append([f"{row['time']:.2f}", text(str(row["noisy"])), text(str(row["text"]))])
    steps = table(["time", "canvas", "estimate"], lines, label=f"The steps of {name}")
    return element("div", element("p", element("b", name)), steps)
