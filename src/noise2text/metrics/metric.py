"""Metrics: a few numbers per sentence that add up, and a formula from their sums to the score.

BLEU, chrF, TER and SARI of a corpus are functions of sums over its sentences, f(Σᵢ sᵢ), and a mean is the
simplest of them: s = (x, 1), f(a, b) = a / b. So each text is read once. A bootstrap resample in which
sentence i occurs wᵢ times is f(Σᵢ wᵢ sᵢ): all resamples are one matrix product, and no text is scored again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from noise2text.core.errors import Problem

__all__ = [
    "Array",
    "EvaluationInput",
    "Metric",
    "NgramCounts",
    "References",
    "Score",
    "Statistics",
    "count_ngrams",
    "count_references",
    "mean_statistics",
    "safe_divide",
]

Array = NDArray[np.float64]
NgramCounts = Counter[tuple[str, ...]]
References = Sequence[Sequence[str]]  # one sequence per sentence; their lengths may differ


@dataclass(frozen=True)
class Score:
    """A number with the name of its metric and a signature that says how it was computed."""

    name: str
    score: float
    signature: str


@dataclass(frozen=True)
class Statistics:
    """The numbers of each sentence, and the formula from their sums to the score."""

    rows: Array  # (sentences, numbers)
    formula: Callable[[Array], Array]  # (…, numbers) → (…)
    signature: str

    @property
    def score(self) -> float:
        """The score of all sentences."""
        return float(self.formula(self.rows.sum(axis=0)))

    def resample(self, weights: Array) -> Array:
        """The score of each resample, (resamples,); its weights say how often it has each sentence."""
        return self.formula(weights @ self.rows)


@dataclass(frozen=True)
class EvaluationInput:
    """The texts to evaluate, their references and, for metrics that need them, their sources."""

    hypotheses: Sequence[str]
    references: References
    sources: Sequence[str] | None = None


@dataclass(frozen=True)
class Metric:
    """A metric: call it for the score, or take its statistics for a bootstrap."""

    name: str  # in commands and JSON
    label: str  # in tables
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


def count_ngrams(words: Sequence[str], n: int) -> NgramCounts:
    """How often each n-gram occurs."""
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def safe_divide(part: Array, whole: Array) -> Array:
    """part / whole, and 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)


def count_references(references: References) -> str:
    """The number of references per sentence, for signatures; "var" if they differ."""
    counts = {len(sentence_references) for sentence_references in references}
    return str(counts.pop()) if len(counts) == 1 else "var"
