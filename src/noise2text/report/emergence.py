"""How the first texts emerge from noise, step by step, run beside run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from noise2text.analysis.finding import Row
from noise2text.analysis.traces import trace_table
from noise2text.report.evidence import TRACED, Evidence
from noise2text.report.markup import Html, Section, element, joined, note, table, text

__all__ = ["emergence"]

STOPS = 6


def emergence(evidence: Evidence) -> Section:
    """The source and the reference of each of the first sentences, and each run's way to its text."""
    pairs = evidence.pairs[:TRACED]
    made = {each.name: each.made for each in evidence.subjects}
    signature = f"seed:{evidence.terms.seed}|stops:{STOPS}|time:1 is noise, 0 is text"
    found = trace_table(pairs, made, stops=STOPS, signature=signature)
    about = (
        "At each time (1 is noise, 0 is text) the canvas, read as the nearest tokens, and what the model "
        "makes of it; for systems that write from left to right both are what was written so far."
    )
    shown = [_sentence(list(rows)) for _, rows in groupby(found.rows, key=lambda row: row["sentence"])]
    after = element("p", f"After {found.after}. ", element("code", found.signature), class_="quiet")
    return Section("traces", "How texts emerge", joined(note(about), *shown, after))


def _sentence(rows: list[Row]) -> Html:
    first = rows[0]
    heading = element("h3", text(str(first["source"])))
    reference = element("p", "Reference: ", text(str(first["reference"])))
    ways = [_way(str(name), own) for name, own in groupby(rows, key=lambda row: row["system"])]
    return joined(heading, reference, element("div", *ways, class_="figures"))


def _way(name: str, rows: Iterable[Row]) -> Html:
    """The steps, and in the last row what was chosen."""
    lines: list[list[object]] = []
    for row in rows:
        if row["time"] is None:
            lines.append(["chosen", "", element("b", text(str(row["text"])))])
        else:
            lines.append([f"{row['time']:.2f}", text(str(row["noisy"])), text(str(row["text"]))])
    steps = table(["time", "canvas", "estimate"], lines, label=f"The way of {name}")
    return element("div", element("p", element("b", name)), steps)
