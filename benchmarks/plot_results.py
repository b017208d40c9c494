"""Draws the pictures of the results pages from their data files.

    python benchmarks/plot_results.py docs/results docs/images

Each file has one row per point: system, settings, the value on the x axis, BLEU, the place of its label.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PLOTS", "Plot", "draw"]

MARKERS = "osD^v"
LABELS = {
    "above": ((0, 6), "center", "bottom"),
    "below": ((0, -6), "center", "top"),
    "left": ((-7, 0), "right", "center"),
    "right": ((7, 0), "left", "center"),
}
"""Where the words of a point stand, by the column `label`: offset and alignment."""


@dataclass(frozen=True)
class Plot:
    """A data file, its column for the x axis, and what the axes say."""

    name: str
    column: str
    x_label: str
    y_label: str
    logarithmic: bool = False


PLOTS = (
    Plot(
        "latency",
        "milliseconds",
        "milliseconds per sentence (H200, log scale)",
        "BLEU, Tatoeba validation",
        True,
    ),
    Plot("diversity", "div4", "div-4 of ten candidates, in percent", "BLEU, QQP validation"),
)


def draw(plot: Plot, data: Path, out: Path) -> None:
    """Write the picture of one data file as SVG, the same bytes every time."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    rows = list(csv.DictReader((data / f"{plot.name}.csv").read_text(encoding="utf-8").splitlines()))
    with pyplot.rc_context({"svg.hashsalt": plot.name, "svg.fonttype": "none", "font.size": 9}):
        figure, axes = pyplot.subplots(figsize=(6.4, 3.8), layout="constrained")
        for marker, system in zip(MARKERS, dict.fromkeys(row["system"] for row in rows), strict=False):
            points = [
                (float(row[plot.column]), float(row["bleu"])) for row in rows if row["system"] == system
            ]
            axes.plot(*zip(*points, strict=True), marker, label=system, markersize=7, alpha=0.85)
        for row in rows:
            offset, horizontal, vertical = LABELS[row["label"]]
            axes.annotate(
                row["settings"],
                (float(row[plot.column]), float(row["bleu"])),
                xytext=offset,
                textcoords="offset points",
                ha=horizontal,
                va=vertical,
                fontsize=8,
            )
        if plot.logarithmic:
            axes.set_xscale("log")
            axes.set_xticks([4, 5, 7, 10, 20, 50], labels=["4", "5", "7", "10", "20", "50"])
            axes.minorticks_off()
        axes.margins(0.14)
        axes.grid(alpha=0.25)
        axes.set(xlabel=plot.x_label, ylabel=plot.y_label)
        axes.legend(fontsize=8, loc="lower right" if plot.logarithmic else "lower left")
        figure.savefig(out / f"{plot.name}.svg", metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    for each in PLOTS:
        draw(each, Path(sys.argv[1]), Path(sys.argv[2]))
