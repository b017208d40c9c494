"""The summary that opens a report: five lines, with the best run first."""

from __future__ import annotations

from collections.abc import Mapping

from noise2text.metrics.evaluate import DEFAULT_METRICS, evaluate
from noise2text.report.html import Html, Section, element
from noise2text.report.report_data import ReportData

__all__ = ["summarize"]


def summarize(data: ReportData) -> Section:
    """Quality, exact texts, copies, size and what was measured, one line each."""
    found = {
        each.name: evaluate(each.output.texts, data.references, data.sources, metrics=DEFAULT_METRICS)
        for each in data.runs
    }
    bleu = {name: own["bleu"]["score"] for name, own in found.items()}
    exact = {name: own["exact_match"]["score"] for name, own in found.items()}
    copied = {name: 100 * own["copied"] for name, own in found.items()}
    sizes = {each.name: each.inspection["model"]["parameters"] for each in data.runs}
    lines = [
        _line("BLEU", {name: f"{value:.2f}" for name, value in _falling(bleu).items()}),
        _line(
            "Exactly the reference",
            {name: f"{value:.1f}\N{NO-BREAK SPACE}%" for name, value in _falling(exact).items()},
        ),
        _line(
            "Copies of the source",
            {name: f"{value:.1f}\N{NO-BREAK SPACE}%" for name, value in copied.items()},
        ),
        _line("Parameters", {name: f"{value:,}" for name, value in sizes.items()}),
        element("li", f"Measured on {data.describe_count()} of {data.file}, seed {data.config.seed}."),
    ]
    return Section("summary", "Summary", element("ul", *lines, class_="summary"))


def _falling(values: Mapping[str, float]) -> dict[str, float]:
    """The values, highest first; equal ones in the order of the runs."""
    return dict(sorted(values.items(), key=lambda item: -item[1]))


def _line(title: str, values: Mapping[str, str]) -> Html:
    shown = [f"{name} {value}" for name, value in values.items()]
    return element("li", element("b", f"{title}: "), ", ".join(shown), ".")
