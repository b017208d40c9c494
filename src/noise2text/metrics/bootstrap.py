"""Bootstrap confidence intervals (Efron, 1979; Koehn, 2004): the scores of similar test sets.

A resample draws as many sentences as there are, with replacement. The 95 % interval goes from the 2.5th to
the 97.5th percentile of the resamples' scores. The resamples come from numpy's generator with sacrebleu's
seed, in sacrebleu's order, so they are sacrebleu's; and they are the same for every metric and system, which
makes tests paired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from noise2text.core.errors import Problem
from noise2text.metrics.metric import Array, Statistics

__all__ = ["N_RESAMPLES", "SEED", "ConfidenceInterval", "bootstrap_scores", "confidence_interval"]

N_RESAMPLES, SEED = 1000, 12345
MAX_RESAMPLED_SENTENCES = 1 << 22  # sentences of all resamples in memory at once


@dataclass(frozen=True)
class ConfidenceInterval:
    """A 95 % interval and the signature of its method."""

    low: float
    high: float
    signature: str


def confidence_interval(statistics: Statistics, *, n_resamples: int = N_RESAMPLES) -> ConfidenceInterval:
    """The 95 % interval of a score."""
    low, high = np.percentile(bootstrap_scores(statistics, n_resamples=n_resamples), (2.5, 97.5))
    return ConfidenceInterval(float(low), float(high), f"percentile|bs:{n_resamples}|seed:{SEED}")


def bootstrap_scores(statistics: Statistics, *, n_resamples: int = N_RESAMPLES) -> Array:
    """The score of each resample, (resamples,)."""
    if n_resamples < 1:
        raise Problem(f"A bootstrap needs at least 1 resample, not {n_resamples}.")
    return np.concatenate(
        [statistics.resample(part) for part in _resample_weights(len(statistics.rows), n_resamples)]
    )


def _resample_weights(sentences: int, n_resamples: int) -> Iterator[Array]:
    """How often each sentence is in each resample, in chunks of shape (resamples, sentences)."""
    generator = np.random.default_rng(SEED)
    chunk = max(1, MAX_RESAMPLED_SENTENCES // sentences)
    for start in range(0, n_resamples, chunk):
        size = (min(chunk, n_resamples - start), sentences)
        indices = generator.choice(sentences, size=size, replace=True)
        rows = sentences * np.arange(size[0])[:, None]
        counts = np.bincount((indices + rows).ravel(), minlength=size[0] * sentences)
        yield counts.reshape(size).astype(np.float64)
