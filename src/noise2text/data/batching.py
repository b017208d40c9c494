"""The order of the data, as a pure function of the seed and the epoch.

Pairs are put on the rungs of a small ladder of (source, target) widths, so that a run meets few shapes.
A batch holds as many rows of one rung as its token budget allows. What does not fill a batch climbs to the
next rung, where it fits too; the last batch is filled up with pairs of the same epoch. So every shape is
full, an epoch always has the same number of batches, and "where are we" is one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["FEW", "MANY", "Batch", "Plan", "ladder"]

Shape = tuple[int, int]

FEW, MANY = 6, 12
"""Rungs of a ladder: few where a shape costs something (a GPU records each), many where padding does (a CPU).

One long pair stretches the ladder; with few rungs the short pairs, which are most, then share a wide one.
"""


@dataclass(frozen=True)
class Batch:
    """Which pairs go together, and the widths of source and target that they are padded to."""

    pairs: np.ndarray
    shape: Shape


def ladder(lengths: np.ndarray, *, rungs: int = FEW, multiple: int = 4) -> list[Shape]:
    """Source and target widths for pairs (N, 2), from narrow to all, each √2 times wider."""
    longer = lengths.max(axis=1)
    widest = lengths.max(axis=0)
    shapes = set()
    for rung in range(rungs):
        inside = lengths[longer <= math.ceil(longer.max() * 2 ** (-rung / 2))]
        if len(inside):
            source, target = np.minimum(-(-inside.max(axis=0) // multiple) * multiple, widest)
            shapes.add((int(source), int(target)))
    return sorted(shapes)


def _rows(count: int) -> int:
    """At least one row; many are rounded down to a multiple of 8, as the products of GPUs like them."""
    return count - count % 8 if count >= 256 else max(1, count)


class Plan:
    """The batches of every epoch over pairs of the given lengths."""

    def __init__(self, lengths: np.ndarray, *, tokens: int, seed: int, shapes: Sequence[Shape] = ()) -> None:
        self.shapes = list(shapes or ladder(lengths))
        fits = [(lengths[:, 0] <= source) & (lengths[:, 1] <= target) for source, target in self.shapes]
        self._rung = np.argmax(np.stack(fits), axis=0).astype(np.int16)
        self._rows = [_rows(tokens // max(shape)) for shape in self.shapes]
        self._seed = seed
        self.batches_per_epoch = self._count()
        self._open: tuple[int, list[Batch]] = (-1, [])

    @property
    def fewest(self) -> int:
        """The rows of the smallest batch, that of the longest pairs."""
        return min(self._rows)

    def _count(self) -> int:
        batches, waiting = 0, 0
        for rung, rows in enumerate(self._rows):
            full, waiting = divmod(waiting + int((self._rung == rung).sum()), rows)
            batches += full
        return batches + (waiting > 0)

    def epoch(self, epoch: int) -> list[Batch]:
        """The batches of an epoch, shuffled."""
        rng = np.random.default_rng([self._seed, epoch])
        order = rng.permutation(len(self._rung))
        rungs = self._rung[order]
        batches: list[Batch] = []
        waiting = order[:0]
        for rung, (shape, rows) in enumerate(zip(self.shapes, self._rows, strict=True)):
            here = np.concatenate([waiting, order[rungs == rung]])
            full = len(here) // rows * rows
            batches += [Batch(here[i : i + rows], shape) for i in range(0, full, rows)]
            waiting = here[full:]
        if len(waiting):
            batches.append(
                Batch(np.resize(np.concatenate([waiting, order]), self._rows[-1]), self.shapes[-1])
            )
        return [batches[i] for i in rng.permutation(len(batches))]

    def batch(self, number: int) -> Batch:
        """The batch with this number, counted over all epochs from 0."""
        epoch, index = divmod(number, self.batches_per_epoch)
        if self._open[0] != epoch:
            self._open = (epoch, self.epoch(epoch))
        return self._open[1][index]
