"""The result of an analysis: rows of numbers, their signature, and a figure.

Every analysis returns findings, so that commands and reports are simple: a finding is written as JSON,
CSV, SVG and PNG, or inserted into a page. Lines differ in dash and marker as well as in color, so that a
figure can be read in grayscale.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.core.files import explain_write_failures, write_atomically

__all__ = [
    "LINE_STYLES",
    "Finding",
    "ResultRow",
    "draw_figure",
    "draw_lines",
    "plot_lines",
    "render_finding",
    "to_csv",
    "to_svg",
    "write_findings",
]

ResultRow = Mapping[str, float | int | str | None]
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # by name: xs and ys

LINE_STYLES: tuple[dict[str, str], ...] = (
    {"color": "#1b4f8a", "linestyle": "-", "marker": "o"},
    {"color": "#d9822b", "linestyle": "--", "marker": "s"},
    {"color": "#2e8b6d", "linestyle": "-.", "marker": "^"},
    {"color": "#a83279", "linestyle": ":", "marker": "D"},
    {"color": "#7a7a7a", "linestyle": "-", "marker": "v"},
    {"color": "#6b4fa0", "linestyle": "--", "marker": "P"},
    {"color": "#0f7f8c", "linestyle": "-.", "marker": "X"},
    {"color": "#8c5a1e", "linestyle": ":", "marker": "*"},
)
"""The styles of the first, second, … line of a figure."""


@dataclass(frozen=True)
class Finding:
    """A table, the paper's figure it follows, its signature, and a function that draws it."""

    name: str  # a file name: bleu-by-length
    title: str  # one line for people
    paper_figure: str  # the paper's figure or table: "Difformer, figure 2a"
    rows: Sequence[ResultRow]
    signature: str
    draw: Callable[[Any], None] | None = None  # on a matplotlib Figure

    @property
    def columns(self) -> list[str]:
        """The names of the columns in order of first appearance."""
        return list(dict.fromkeys(column for row in self.rows for column in row))

    def as_json(self) -> dict[str, Any]:
        """Everything except the figure, ready for JSON."""
        facts = {
            "name": self.name,
            "title": self.title,
            "paper_figure": self.paper_figure,
            "signature": self.signature,
        }
        return facts | {"rows": [dict(row) for row in self.rows]}


def draw_lines(figure: Any, *, lines: Lines, x: str, y: str) -> None:
    """Draw named lines as the only panel of a figure."""
    plot_lines(figure.subplots(), lines, x=x, y=y)


def plot_lines(axes: Any, lines: Lines, *, x: str, y: str) -> None:
    """Draw named lines (xs, ys) on axes, with labels and, for several lines, a legend."""
    for number, (name, (xs, ys)) in enumerate(lines.items()):
        style = LINE_STYLES[number % len(LINE_STYLES)]
        axes.plot(xs, ys, label=name, markersize=3.5, linewidth=1.4, markevery=max(1, len(xs) // 12), **style)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    if len(lines) > 1:
        axes.legend(fontsize=8, frameon=False)


def draw_figure(finding: Finding) -> Any:
    """The finding as a matplotlib Figure; None if it cannot be drawn."""
    if finding.draw is None:
        return None
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Problem("Figures need the package matplotlib: pip install 'noise2text[report]'.") from error
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    with rc_context({"text.parse_math": False}):  # a $ in a run's name is a $
        finding.draw(figure)
    return figure


def to_svg(finding: Finding) -> str | None:
    """The figure as SVG, the same bytes every time, with text as text."""
    figure = draw_figure(finding)
    if figure is None:
        return None
    from matplotlib import rc_context

    page = io.StringIO()
    with rc_context({"svg.hashsalt": finding.name, "svg.fonttype": "none"}):
        figure.savefig(page, format="svg", metadata={"Date": None})
    return page.getvalue()


def to_csv(finding: Finding) -> str:
    """The rows with a header."""
    page = io.StringIO()
    writer = csv.DictWriter(page, finding.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(finding.rows)
    return page.getvalue()


def render_finding(finding: Finding) -> dict[str, bytes]:
    """The contents of NAME.json, NAME.csv and, if it can be drawn, NAME.svg and NAME.png, by their names."""
    contents = {
        "json": (json.dumps(finding.as_json(), indent=2, ensure_ascii=False) + "\n").encode(),
        "csv": to_csv(finding).encode(),
    }
    svg = to_svg(finding)
    if svg is not None:
        image = io.BytesIO()
        draw_figure(finding).savefig(image, format="png", dpi=150)
        contents |= {"svg": svg.encode(), "png": image.getvalue()}
    return {f"{finding.name}.{kind}": content for kind, content in contents.items()}


def write_findings(findings: Sequence[Finding], folder: Path) -> dict[str, list[Path]]:
    """The files of each finding, by its name; all are rendered before the first is written."""
    rendered = {finding.name: render_finding(finding) for finding in findings}
    with explain_write_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for files in rendered.values():
        for name, content in files.items():
            write_atomically(folder / name, lambda draft, content=content: draft.write_bytes(content))  # type: ignore[misc]
    return {name: [folder / file for file in files] for name, files in rendered.items()}
