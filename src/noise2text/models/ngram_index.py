"""An index of token rows by their n-grams, n = 1 … 4; similarity is the F-score of the shared ones.

    similarity(q, d) = 2 · Σ_g min(count_q(g), count_d(g)) / (|q| + |d|)

The sum is over the n-grams g of all orders, and |·| is their number. For each n-gram, an inverted list has
the rows that contain it, so that a query reads only rows that share something with it. An n-gram is
identified by a 64-bit hash.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noise2text.data.ragged import RaggedRows

__all__ = ["NgramIndex"]

ORDER = 4
_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HASH_SHIFT = np.uint64(29)


class NgramIndex:
    """Finds the rows of a corpus that are most similar to a given row."""

    def __init__(self, rows: RaggedRows) -> None:
        grams, owners = _grams(rows)
        self.sizes = np.bincount(owners, minlength=len(rows))  # n-grams of each row
        order = np.lexsort((owners, grams))
        grams, owners = grams[order], owners[order]
        new = np.ones(len(grams), dtype=bool)  # where another n-gram or another row begins
        new[1:] = (grams[1:] != grams[:-1]) | (owners[1:] != owners[:-1])
        self._owners = owners[new].astype(np.int32)
        self._counts = np.diff(np.append(np.flatnonzero(new), len(grams))).astype(np.int32)
        self._grams, starts = np.unique(grams[new], return_index=True)
        self._bounds = np.append(starts, len(self._owners))

    def search(self, row: Sequence[int], count: int) -> tuple[np.ndarray, np.ndarray]:
        """The row numbers of the `count` nearest rows, nearest first, and their similarities."""
        grams, times = np.unique(_grams(RaggedRows.from_lists([row]))[0], return_counts=True)
        found = np.minimum(np.searchsorted(self._grams, grams), len(self._grams) - 1)
        known = self._grams[found] == grams
        shared = np.zeros(len(self.sizes))
        for gram, limit in zip(found[known], times[known], strict=True):
            listed = slice(self._bounds[gram], self._bounds[gram + 1])
            shared[self._owners[listed]] += np.minimum(self._counts[listed], limit)  # each row at most once
        similarity = 2 * shared / (times.sum() + self.sizes)
        chosen = np.argsort(-similarity, kind="stable")[:count]
        return chosen, similarity[chosen]


def _grams(rows: RaggedRows) -> tuple[np.ndarray, np.ndarray]:
    """A hash for each n-gram of each order, and the number of its row."""
    tokens = rows.tokens.astype(np.uint64)
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    ends = np.repeat(np.cumsum(rows.lengths), rows.lengths)
    left = ends - np.arange(len(tokens))  # tokens up to the end of the row
    hashes, found, gram_owners = np.zeros(len(tokens), dtype=np.uint64), [], []
    for n in range(min(ORDER, len(tokens))):
        size = len(tokens) - n
        mixed = (hashes[:size] ^ (tokens[n:] + np.uint64(1))) * _HASH_MULTIPLIER
        hashes = mixed ^ (mixed >> _HASH_SHIFT)
        inside = left[:size] > n
        found.append(hashes[inside])
        gram_owners.append(owners[:size][inside])
    return np.concatenate(found), np.concatenate(gram_owners)
