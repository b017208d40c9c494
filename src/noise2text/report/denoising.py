"""The denoising of the first texts, step by step, for each run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from noise2text.analysis.finding import ResultRow
from noise2text.analysis.traces import trace_table
from noise2text.report.html import Html, Section, details, element, join_html, note, radio, table, text
from noise2text.report.report_data import TRACED_SENTENCES, ReportData

__all__ = ["show_denoising"]

SHOWN_STEPS = 6


def show_denoising(data: ReportData) -> Section:
    """The source, the reference and the steps of each run, for the first sentences."""
    pairs = data.pairs[:TRACED_SENTENCES]
    outputs = {each.name: each.output for each in data.runs}
    signature = f"seed:{data.config.seed}|shown_steps:{SHOWN_STEPS}|time:1 is noise, 0 is text"
    found = trace_table(pairs, outputs, shown_steps=SHOWN_STEPS, signature=signature)
    about = (
        "At each time (1 is noise, 0 is text): the canvas, rounded to the nearest tokens, and the model's "
        "estimate of the text. Choose a time with the mouse or the arrow keys. For autoregressive models "
        "both are the tokens so far."
    )
    sentences = groupby(found.rows, key=lambda row: row["sentence"])
    shown = [_sentence(list(rows), number) for number, (_, rows) in enumerate(sentences, start=1)]
    paper_figure = element(
        "p", f"After {found.paper_figure}. ", element("code", found.signature), class_="quiet"
    )
    return Section("traces", "Denoising", join_html(note(about), *shown, paper_figure))


def _sentence(rows: list[ResultRow], number: int) -> Html:
    first = rows[0]
    heading = element("h3", text(str(first["source"])))
    reference = element("p", "Reference: ", text(str(first["reference"])))
    by_run = {str(name): list(own) for name, own in groupby(rows, key=lambda row: row["system"])}
    shown = [
        _run_steps(name, own, group=f"step-{number}-{place}")
        for place, (name, own) in enumerate(by_run.items(), start=1)
    ]
    return join_html(heading, reference, element("div", *shown, class_="figures"))


def _run_steps(name: str, rows: list[ResultRow], *, group: str) -> Html:
    title = element("p", element("b", name))
    if len(rows) == 1:  # a model without steps
        return element("div", title, element("p", element("b", text(str(rows[0]["text"])))))
    return element("div", title, _slider(name, rows, group), details("All steps", _steps_table(name, rows)))


def _slider(name: str, rows: list[ResultRow], group: str) -> Html:
    """One step at a time, chosen by radio buttons in a row, which the arrow keys move; the last is shown."""
    stops, frames = [], []
    for number, row in enumerate(rows, start=1):
        is_selected = row["time"] is None
        label = "text" if is_selected else f"{row['time']:.2f}"
        stops.append(radio(group, number, checked=number == len(rows)))
        stops.append(element("label", label, for_=f"{group}-{number}"))
        canvas = "" if is_selected else element("p", text(str(row["noisy"])), class_="quiet")
        frames.append(element("div", canvas, element("p", text(str(row["text"]))), class_="frame"))
    return element(
        "div", *stops, *frames, class_="slider", role="radiogroup", aria_label=f"The time of {name}"
    )


def _steps_table(name: str, rows: Iterable[ResultRow]) -> Html:
    """The steps, and in the last row the selected text."""
    lines: list[list[object]] = []
    for row in rows:
        if row["time"] is None:
            lines.append(["selected", "", element("b", text(str(row["text"])))])
        else:
            lines.append([f"{row['time']:.2f}", text(str(row["noisy"])), text(str(row["text"]))])
    steps = table(["time", "canvas", "estimate"], lines, label=f"The steps of {name}")
    return steps
