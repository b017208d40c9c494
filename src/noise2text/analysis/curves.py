"""Training curves: every number of metrics.jsonl over the steps, several runs in one figure.

    s_n = Σ_k w^{|n−k|} v_k / Σ_k w^{|n−k|}        w in [0, 1)

is the smoothed curve. It weights both sides equally, so it does not lag. The raw curve is drawn behind it.

A joint canvas is mostly padding, and a model that predicts only padding has a low nll over all positions.
So `nll` (with padding) and `nll_text` (without) share a figure if a run has logged both (Demirag, 2023,
figure 4.3).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from noise2text.analysis.finding import LINE_STYLES, Finding, ResultRow
from noise2text.analysis.inputs import Inputs
from noise2text.core.config import Config, option
from noise2text.core.errors import Problem

__all__ = ["Curve", "CurvesOptions", "analyze_curves", "read_metrics", "smooth_curve"]

LABELS = {
    "gradient": "gradient norm",
    "tokens_per_second": "tokens per second",
    "rate": "learning rate",
    "valid_bleu": "validation BLEU",
    "valid_exact": "validation exact match (%)",
    "nll_text": "nll of the text alone",
}
"""The axis labels of numbers whose name is not clear enough."""

PAPER_FIGURES = dict.fromkeys(("nll", "nll_text"), "Demirag (2023), figure 4.3")
"""The figure of a paper that shows the same number."""


@dataclass(frozen=True)
class CurvesOptions(Config):
    """Which curves are drawn, and how smooth."""

    smoothing: float = option(
        0.6, "w, the weight of a point relative to its neighbor; 0 for no smoothing", minimum=0, below=1
    )
    only: str = option("", "names of the numbers to show, separated by commas; by default all")


@dataclass(frozen=True)
class Curve:
    """A number over the steps of a run; None where it was not finite."""

    steps: Sequence[int]
    values: Sequence[float | None]


def smooth_curve(values: Sequence[float | None], weight: float) -> list[float | None]:
    """The weighted mean of each value and its neighbors; a gap stays a gap and has no weight."""
    known = [0.0 if value is None else value for value in values]
    counted = [0.0 if value is None else 1.0 for value in values]
    totals, counts = (_two_sided_sum(each, weight) for each in (known, counted))
    return [
        None if value is None else total / count
        for value, total, count in zip(values, totals, counts, strict=True)
    ]


def _two_sided_sum(values: Sequence[float], weight: float) -> list[float]:
    """Σ_k w^{|n−k|} v_k for each n, by one pass from each side."""
    before, after = (
        list(accumulate(side, lambda total, value: weight * total + value)) for side in (values, values[::-1])
    )
    return [left + right - own for left, right, own in zip(before, after[::-1], values, strict=True)]


def read_metrics(folder: Path) -> dict[str, Curve]:
    """The curves that a run has logged, by name, in the order in which they first appear."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        raise Problem(f"{folder} has no metrics.jsonl: give the folder of a training run.")
    lines = path.read_text("utf-8", errors="replace").splitlines()
    points: dict[str, dict[int, float | None]] = {}
    for number, line in enumerate(lines, 1):
        record = _parse_line(line, f"{path}, line {number}", last=number == len(lines))
        step = int(record.pop("step", 0))
        for name, value in record.items():
            points.setdefault(name, {})[step] = value if math.isfinite(value) else None
    if not points:
        raise Problem(f"{path} has no numbers yet: wait until the run has logged some.")
    return {name: Curve(list(own), list(own.values())) for name, own in points.items()}


def _parse_line(line: str, place: str, *, last: bool) -> dict[str, float]:
    """The numbers of a line; none if it is the last line and was cut off by a kill."""
    try:
        read = json.loads(line)
        values = {str(name): float(value) for name, value in read.items()}
        int(values.get("step", 0))  # which is finite
        return values
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        if last:
            return {}
        raise Problem(f"{place}: this is not a JSON object of numbers; delete the line.") from error


def analyze_curves(inputs: Inputs, options: CurvesOptions) -> list[Finding]:
    """One finding per logged number, and one of nll with and without padding."""
    runs = {name: read_metrics(folder) for name, folder in inputs.folders_by_name().items()}
    known = list(dict.fromkeys(name for run in runs.values() for name in run))
    wanted = [name.strip() for name in options.only.split(",") if name.strip()] or known
    for name in wanted:
        if name not in known:
            raise Problem(f"No run has logged {name!r}; there are {', '.join(known)}.")
    found = [_curve(name, runs, options) for name in wanted]
    for kind in ("", "valid_"):
        both = f"{kind}nll", f"{kind}nll_text"
        if set(both) <= set(wanted) and any(set(both) <= set(run) for run in runs.values()):
            found.append(_with_and_without_padding(both, runs, options))
    return found


def _curve(name: str, runs: Mapping[str, Mapping[str, Curve]], options: CurvesOptions) -> Finding:
    lines = {run: logged[name] for run, logged in runs.items() if name in logged}
    title = f"{_label(name)} over training"
    return _finding(f"curve-{name}", title, PAPER_FIGURES.get(name, ""), lines, _label(name), options)


def _with_and_without_padding(
    names: Sequence[str], runs: Mapping[str, Mapping[str, Curve]], options: CurvesOptions
) -> Finding:
    """The nll with and without padding of every run that has logged both."""
    lines = {
        f"{run}, {about} padding": logged[name]
        for run, logged in runs.items()
        if set(names) <= set(logged)
        for name, about in zip(names, ("with", "without"), strict=True)
    }
    title = "negative log-likelihood with and without padding"
    return _finding(f"curve-{names[0]}-padding", title, PAPER_FIGURES["nll"], lines, "nll", options)


def _finding(
    name: str, title: str, paper_figure: str, lines: Mapping[str, Curve], label: str, options: CurvesOptions
) -> Finding:
    # Validation numbers are few and exact; only means over noisy training steps are smoothed.
    weight = 0.0 if name.startswith("curve-valid_") else options.smoothing
    smooth = {line: smooth_curve(curve.values, weight) for line, curve in lines.items()}
    rows: list[ResultRow] = [
        {"run": line, "step": step, "value": value, "smoothed": mean}
        for line, curve in lines.items()
        for step, value, mean in zip(curve.steps, curve.values, smooth[line], strict=True)
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, (line, curve) in enumerate(lines.items()):
            style = LINE_STYLES[number % len(LINE_STYLES)]
            if weight:
                axes.plot(curve.steps, _gaps(curve.values), color=style["color"], alpha=0.3, linewidth=0.8)
            shown = {"markersize": 3.5, "markevery": max(1, len(curve.steps) // 12), **style}
            axes.plot(curve.steps, _gaps(smooth[line]), label=line, linewidth=1.4, **shown)
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, frameon=False)

    return Finding(name, title, paper_figure, rows, f"metrics.jsonl|smoothing:{weight:g}", draw)


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _label(name: str) -> str:
    plain = name.removeprefix("valid_")
    if name in LABELS:
        return LABELS[name]
    return f"validation {LABELS.get(plain, plain)}" if name != plain else name
