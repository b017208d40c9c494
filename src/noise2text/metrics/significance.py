"""Paired bootstrap (Koehn, 2004): whether two systems differ by more than the choice of test sentences.

The sentences are resampled with replacement a thousand times, in the same way for both systems. With d the
difference of the scores and dᵢ that of resample i, p is the share of resamples whose difference exceeds its
own mean by more than d,

    p = (1 + #{i : |dᵢ| − mean |d| > |d|}) / (1 + resamples).

This is sacrebleu's test, for every metric with statistics per sentence. If the scores are equal, p is 1, not
sacrebleu's 1 / (1 + resamples).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noise2text.core.errors import Problem
from noise2text.metrics.bleu import bleu
from noise2text.metrics.bootstrap import N_RESAMPLES, SEED, bootstrap_scores
from noise2text.metrics.chrf import chrf
from noise2text.metrics.metric import Array, Metric, References

__all__ = ["BootstrapResult", "paired_bootstrap"]


@dataclass(frozen=True)
class BootstrapResult:
    """A system's score, the mean and 95 % interval of its resamples, and p of its difference to the first."""

    metric: str
    score: float
    mean: float
    interval: float  # half of the 95 % interval
    p: float | None  # None for the first system
    signature: str


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: References,
    sources: Sequence[str] | None = None,
    *,
    metrics: Sequence[Metric] = (bleu, chrf),
    n_resamples: int = N_RESAMPLES,
) -> dict[str, list[BootstrapResult]]:
    """The results of each system, tested against the first system, for each metric."""
    for name, texts in systems.items():
        if len(texts) != len(references):
            counts = f"{len(texts)} texts and {len(references)} references"
            raise Problem(f"The lines of {name} do not pair up, {counts}: give one line per sentence.")
    found: dict[str, list[BootstrapResult]] = {name: [] for name in systems}
    for metric in metrics:
        first: tuple[float, Array] | None = None
        for name, texts in systems.items():
            statistics = metric.statistics(texts, references, sources)
            score, resampled = statistics.score, bootstrap_scores(statistics, n_resamples=n_resamples)
            p = None if first is None else _p_value(score - first[0], resampled - first[1])
            numbers = (score, float(resampled.mean()), _half_width(resampled))
            signature = f"{statistics.signature}|bs:{n_resamples}|seed:{SEED}"
            found[name].append(BootstrapResult(metric.label, *numbers, p=p, signature=signature))
            first = first or (score, resampled)
    return found


def _p_value(difference: float, resampled: Array) -> float:
    if difference == 0:
        return 1.0
    sizes = np.abs(resampled)
    return float((1 + np.sum(sizes - sizes.mean() > abs(difference))) / (1 + len(sizes)))


def _half_width(resampled: Array) -> float:
    """Half of the distance between the scores that leave a fortieth of the resamples out on each side."""
    ordered, outside = np.sort(resampled), len(resampled) // 40
    return float(ordered[len(resampled) - outside - 1] - ordered[outside]) / 2
