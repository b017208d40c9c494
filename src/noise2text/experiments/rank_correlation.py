"""Rank correlation: Spearman's ρ and Kendall's τ-b.

    ρ = the correlation of the ranks, where equal values share their mean rank
    τ = (C − D) / √((n₀ − n₁)(n₀ − n₂)),  n₀ = n(n − 1)/2

C and D are the numbers of concordant and discordant pairs, n₁ and n₂ those of pairs tied in one order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

__all__ = ["kendall", "rank_from_best", "ranks", "spearman"]


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, 1 for the least; equal values share their mean rank."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def rank_from_best(values: Sequence[float], *, lower_is_better: bool) -> list[int]:
    """The rank of each value, 1 for the best; equal values share the better rank."""
    signed = [-value if lower_is_better else value for value in values]
    return [1 + sum(other > value for other in signed) for value in signed]


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """ρ; None if all values of one side are equal."""
    a, b = ranks(first), ranks(second)
    if len(set(a)) < 2 or len(set(b)) < 2:
        return None
    mean = fmean(a)  # the same for both
    x, y = [rank - mean for rank in a], [rank - mean for rank in b]
    covariance = sum(p * q for p, q in zip(x, y, strict=True))
    return covariance / math.sqrt(sum(p * p for p in x) * sum(q * q for q in y))


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """τ-b; None if all values of one side are equal."""
    pairs = [
        (_sign(a - c), _sign(b - d)) for (a, b), (c, d) in combinations(zip(first, second, strict=True), 2)
    ]
    ordered = sum(p != 0 for p, _ in pairs) * sum(q != 0 for _, q in pairs)
    return sum(p * q for p, q in pairs) / math.sqrt(ordered) if ordered else None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
