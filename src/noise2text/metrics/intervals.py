"""Confidence by bootstrap (Efron, 1979; Koehn, 2004): the scores of other test sets like this one.

A draw takes as many sentences as there are, with replacement. The interval of 95 % reaches from the 2.5th
to the 97.5th percentile of the draws' scores. Draws come from numpy's generator under sacrebleu's seed, in
sacrebleu's order, so that both see the same ones; and every metric and system sees the same ones, which
makes tests paired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from noise2text.core.errors import Problem
from noise2text.metrics.score import Array, Statistics

__all__ = ["DRAWS", "SEED", "Interval", "drawn_scores", "interval"]

DRAWS, SEED = 1000, 12345
AT_ONCE = 1 << 22  # drawn sentences that are held in memory


@dataclass(frozen=True)
class Interval:
    """The ends of the interval of 95 %, and how it was found."""

    low: float
    high: float
    signature: str


def interval(statistics: Statistics, *, draws: int = DRAWS) -> Interval:
    """The interval of 95 % of a score."""
    low, high = np.percentile(drawn_scores(statistics, draws=draws), (2.5, 97.5))
    return Interval(float(low), float(high), f"percentile|bs:{draws}|seed:{SEED}")


def drawn_scores(statistics: Statistics, *, draws: int = DRAWS) -> Array:
    """The score of each draw, (draws,)."""
    if draws < 1:
        raise Problem(f"A bootstrap needs at least 1 draw, not {draws}.")
    return np.concatenate([statistics.drawn(part) for part in _weights(len(statistics.rows), draws)])


def _weights(sentences: int, draws: int) -> Iterator[Array]:
    """How often each sentence is in each draw, some draws at a time: (part of the draws, sentences)."""
    generator = np.random.default_rng(SEED)
    some = max(1, AT_ONCE // sentences)
    for start in range(0, draws, some):
        size = (min(some, draws - start), sentences)
        places = generator.choice(sentences, size=size, replace=True)
        rows = sentences * np.arange(size[0])[:, None]
        counts = np.bincount((places + rows).ravel(), minlength=size[0] * sentences)
        yield counts.reshape(size).astype(np.float64)
