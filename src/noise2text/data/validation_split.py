"""An automatic validation split: a pair is set aside if the hash of its source is small.

    u(pair) = hash(seed, source),    validation = {pairs with u ≤ threshold}

All pairs of a source are on the same side, also where it differs in case or spaces, so no validation source
is in the training set. The split depends on the seed and the texts alone, not on their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair

__all__ = ["MAX_PAIRS", "SHARE", "ValidationSplit", "choose_split"]

SHARE = 0.05
"""The share of the pairs that are set aside."""
MAX_PAIRS = 1000
"""The most pairs that are set aside; only a source with many targets can make it more."""


@dataclass(frozen=True)
class ValidationSplit:
    """Which pairs are for validation, and how many of all."""

    seed: int
    threshold: int
    num_pairs: int
    num_validation: int

    def is_validation(self, pair: Pair) -> bool:
        """Whether this pair is set aside."""
        return hash_source(pair.src, self.seed) <= self.threshold

    def describe(self) -> str:
        """One line that says what was done."""
        return (
            f"validation: {self.num_validation:,} of {self.num_pairs:,} pairs are set aside, chosen by their "
            f"sources with seed {self.seed}; no source is on both sides"
        )


def choose_split(pairs: Callable[[], Iterable[Pair]], *, seed: int) -> ValidationSplit:
    """A split of the pairs that sets aside 5 % of them, at most 1,000, and at least one source."""
    hashes = np.fromiter((hash_source(pair.src, seed) for pair in pairs()), dtype=np.uint64)
    values, counts = np.unique(hashes, return_counts=True)
    if len(values) < 2:
        raise Problem(
            "A validation split needs pairs with at least two different sources: give more pairs, or the "
            "validation pairs themselves (--valid)."
        )
    wanted = min(MAX_PAIRS, math.ceil(SHARE * len(hashes)))
    totals = counts.cumsum()
    last = max(0, int(np.searchsorted(totals, wanted, side="right")) - 1)
    return ValidationSplit(seed, int(values[last]), len(hashes), int(totals[last]))


def hash_source(source: str, seed: int) -> int:
    """A 64-bit hash of the seed and the source, whatever its case and spaces."""
    normalized = " ".join(source.casefold().split())
    digest = blake2b(normalized.encode(), digest_size=8, key=str(seed).encode())
    return int.from_bytes(digest.digest(), "big")
