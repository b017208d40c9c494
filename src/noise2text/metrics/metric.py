"""What a metric is: a few numbers a sentence that add up, and the formula from their sums to the score.

BLEU, chrF, TER and SARI of a corpus are functions of sums over its sentences, f(Σᵢ sᵢ), and a mean is the
simplest of them: s = (x, 1), f(a, b) = a / b. So texts are read once. A bootstrap draw in which sentence i
stands wᵢ times is f(Σᵢ wᵢ sᵢ): all draws are one matrix product, and no text is scored again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from noise2text.core.errors import Problem

__all__ = [
    "Array",
    "EvaluationInput",
    "Metric",
    "References",
    "Score",
    "Statistics",
    "count_references",
    "mean_statistics",
    "safe_divide",
]

Array = NDArray[np.float64]
References = Sequence[Sequence[str]]  # a sequence a sentence; sentences may have different numbers


@dataclass(frozen=True)
class Score:
    """A number with the name of its metric and the signature of how it was made."""

    name: str
    score: float
    signature: str


@dataclass(frozen=True)
class Statistics:
    """What a metric saw in each sentence, and how the sums of it become the score."""

    rows: Array  # (sentences, numbers)
    formula: Callable[[Array], Array]  # (…, numbers) → (…)
    signature: str

    @property
    def score(self) -> float:
        """The score of all sentences."""
        return float(self.formula(self.rows.sum(axis=0)))

    def resample(self, weights: Array) -> Array:
        """The score of each draw, (draws,), whose row says how often each sentence is in it."""
        return self.formula(weights @ self.rows)


@dataclass(frozen=True)
class EvaluationInput:
    """What is judged: a text, its references and, for those metrics that read it, its source."""

    hypotheses: Sequence[str]
    references: References
    sources: Sequence[str] | None = None


@dataclass(frozen=True)
class Metric:
    """A way to judge texts: call it for the score, or take the statistics to draw from."""

    name: str  # what commands and JSON call it
    label: str  # what tables call it
    compute: Callable[[EvaluationInput], Statistics] = field(repr=False)
    needs_sources: bool = False
    lower_is_better: bool = False

    def statistics(
        self, hypotheses: Sequence[str], references: References, sources: Sequence[str] | None = None
    ) -> Statistics:
        """The numbers of each sentence."""
        if self.needs_sources and sources is None:
            raise Problem(f"The metric {self.name} compares with the sources, too: give them with --src.")
        return self.compute(EvaluationInput(hypotheses, references, sources))

    def __call__(
        self, hypotheses: Sequence[str], references: References, sources: Sequence[str] | None = None
    ) -> Score:
        """The score of all texts."""
        found = self.statistics(hypotheses, references, sources)
        return Score(self.name, found.score, found.signature)


def mean_statistics(values: Sequence[float], signature: str, *, scale: float = 100) -> Statistics:
    """The statistics of a mean over sentences."""
    rows = np.array([(scale * value, 1.0) for value in values], dtype=np.float64)
    return Statistics(rows, _mean_formula, signature)


def _mean_formula(sums: Array) -> Array:
    return safe_divide(sums[..., 0], sums[..., 1])


def safe_divide(part: Array, whole: Array) -> Array:
    """part / whole, and 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)


def count_references(references: References) -> str:
    """How many references a sentence has, for signatures: a number, or var where they differ."""
    counts = {len(sentence_references) for sentence_references in references}
    return str(counts.pop()) if len(counts) == 1 else "var"
