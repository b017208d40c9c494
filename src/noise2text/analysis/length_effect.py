"""The effect of source length on the difference between two systems (Demirag, 2023, 4.2.1).

    d_r(a, b) = (a − b) / max(a, b) = β₀ + β₁ · length        0 where a = b = 0

is fitted to all sentences, where a and b are the sentence BLEU of two systems (figure 4.2); a t-test decides
whether β₁ = 0 (table 4.3). With a positive slope, a loses less than b on long sources. As d_r(b, a) =
−d_r(a, b), the table of all pairs is antisymmetric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noise2text.analysis.finding import LINE_STYLES, Finding, ResultRow
from noise2text.analysis.linear_regression import LinearFit, critical_t, fit_line
from noise2text.metrics.evaluate import References
from noise2text.metrics.sacrebleu_sentences import sentence_bleu_metric

__all__ = ["CORNER", "Comparison", "compare_systems", "relative_difference", "sentence_bleu"]

CORNER = "column over row"
"""The header of the first column in the table of tests, which says how to read a cell."""


def relative_difference(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> np.ndarray:
    """d_r of non-negative scores: 1 where only a is above 0, −1 where only b is."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    larger = np.maximum(a, b)
    return np.divide(a - b, larger, out=np.zeros_like(larger), where=larger > 0)


def sentence_bleu(hypotheses: Sequence[str], references: References) -> tuple[list[float], str]:
    """sacrebleu's sentence BLEU with effective order, and its signature."""
    metric = sentence_bleu_metric()
    pairs = zip(hypotheses, references, strict=True)
    scores = [float(metric.sentence_score(text, list(own)).score) for text, own in pairs]
    return scores, str(metric.get_signature())


@dataclass(frozen=True)
class Comparison:
    """The lengths of the sources, and for each pair (a, b) d_r of every sentence and the fitted line."""

    names: Sequence[str]
    source_lengths: Sequence[int]
    differences: Mapping[tuple[str, str], np.ndarray]
    lines: Mapping[tuple[str, str], LinearFit]
    signature: str
    confidence: float

    def findings(self, *, unit: str) -> list[Finding]:
        """The fitted lines, drawn for the first system against each other one, and the table of all tests."""
        signature = f"sentence BLEU|{self.signature}|length:{unit}|confidence:{self.confidence:g}"
        return [self._lines(unit, signature), self._tests(signature)]

    def significant_direction(self, a: str, b: str) -> str:
        """Whether the slope of a over b is significantly "up", "down" or neither ("no")."""
        line = self.lines[a, b]
        if abs(line.t) <= critical_t(line.count, self.confidence):
            return "no"
        return "up" if line.t > 0 else "down"

    def _lines(self, unit: str, signature: str) -> Finding:
        first, *others = self.names
        pairs = [(a, b) for number, a in enumerate(self.names) for b in self.names[number + 1 :]]
        rows: list[ResultRow] = [self._row(a, b) for a, b in pairs]

        def draw(figure: Any) -> None:
            across = min(3, len(others))
            down = -(-len(others) // across)
            figure.set_size_inches(max(6.0, 3.0 * across), 3.2 * down)
            panels = list(figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flat)
            for axes, other in zip(panels, others, strict=False):
                self._panel(axes, first, other)
            for axes in panels[len(others) :]:
                axes.set_visible(False)
            figure.supxlabel(f"length of the source in {unit}", fontsize=9)
            figure.supylabel("relative difference of sentence BLEU", fontsize=9)

        title = "Relative difference of sentence BLEU by length of the source"
        return Finding("relative-difference", title, "Demirag (2023), figure 4.2", rows, signature, draw)

    def _row(self, a: str, b: str) -> ResultRow:
        line = self.lines[a, b]
        return {
            "system": a,
            "over": b,
            "sentences": line.count,
            "slope": line.slope,
            "slope_error": line.slope_error,
            "intercept": line.intercept,
            "t": line.t,
            "p": line.p,
            "significant": self.significant_direction(a, b),
        }

    def _panel(self, axes: Any, a: str, b: str) -> None:
        """Draw the mean at each length (larger dots have more sentences), the line and its band."""
        line, lengths = self.lines[a, b], np.asarray(self.source_lengths)
        values, index, sizes = np.unique(lengths, return_inverse=True, return_counts=True)
        means = np.bincount(index, weights=self.differences[a, b]) / sizes
        dots, solid = LINE_STYLES[1]["color"], LINE_STYLES[0]["color"]
        axes.scatter(values, means, s=5 + 40 * sizes / sizes.max(), color=dots, alpha=0.6, linewidths=0)
        x = np.linspace(values[0], values[-1], 100)
        height, confidence_band = line.predict(x), line.confidence_band(x, confidence=self.confidence)
        axes.plot(x, height, color=solid, linewidth=1.4)
        for edge in (height - confidence_band, height + confidence_band):
            axes.plot(x, edge, color=solid, linewidth=1, linestyle="--")
        axes.axhline(0, color="#7a7a7a", linewidth=0.8)
        axes.grid(alpha=0.25)
        axes.set_title(f"{a}\nover {b}", fontsize=8)

    def _tests(self, signature: str) -> Finding:
        rows: list[ResultRow] = [
            {CORNER: row}
            | {column: None if row == column else self.lines[column, row].t for column in self.names}
            for row in self.names
        ]
        count = len(self.source_lengths)
        critical = critical_t(count, self.confidence)
        title = f"t-tests of the slopes, column over row; beyond ±{critical:.2f} a slope is significant"
        about = f"{signature}|degrees of freedom:{count - 2}|two-sided"
        return Finding("slope-tests", title, "Demirag (2023), table 4.3", rows, about, self._draw_tests)

    def _draw_tests(self, figure: Any) -> None:
        """Draw the table; bold where the column's system loses significantly less than the row's."""
        names = list(self.names)
        figure.set_size_inches(max(6.0, 1.2 * len(names) + 2), 0.45 * len(names) + 1)
        axes = figure.subplots()
        axes.axis("off")
        cells = [
            ["–" if row == column else f"{self.lines[column, row].t:.2f}" for column in names]
            for row in names
        ]
        table = axes.table(cells, rowLabels=names, colLabels=names, loc="center", cellLoc="center")
        table.scale(1, 1.5)
        for down, row in enumerate(names, 1):
            for across, column in enumerate(names):
                if row != column and self.significant_direction(column, row) == "up":
                    table[down, across].set_text_props(fontweight="bold")
                    table[down, across].set_facecolor("#e6e6e6")


def compare_systems(
    outputs: Mapping[str, Sequence[str]],
    references: References,
    source_lengths: Sequence[int],
    *,
    confidence: float,
) -> Comparison:
    """The comparison of all pairs of systems, in both orders."""
    scored = {name: sentence_bleu(texts, references) for name, texts in outputs.items()}
    pairs = [(a, b) for a in outputs for b in outputs if a != b]
    differences = {(a, b): relative_difference(scored[a][0], scored[b][0]) for a, b in pairs}
    lines = {pair: fit_line(source_lengths, own) for pair, own in differences.items()}
    signature = next(iter(scored.values()))[1]
    return Comparison(list(outputs), source_lengths, differences, lines, signature, confidence)
