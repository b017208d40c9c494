"""Batches in an order that is a pure function of the seed and the epoch.

Pairs are sorted into a few buckets of (source, target) widths, so that a run sees few shapes. A batch has as
many pairs of one bucket as its token budget allows. Pairs that do not fill a batch move to the next wider
bucket; the last batch is filled up with pairs of the same epoch. So every batch of a shape has the same
size, every epoch has the same number of batches, and one number says where training is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["FEW_BUCKETS", "MANY_BUCKETS", "Batch", "BatchPlan", "bucket_shapes"]

Shape = tuple[int, int]

FEW_BUCKETS, MANY_BUCKETS = 6, 12
"""Numbers of buckets: few where a shape is costly (a CUDA graph on a GPU), many where padding is (a CPU).

One long pair stretches the widths; with few buckets the short pairs, which are most, then share a wide one.
"""


@dataclass(frozen=True)
class Batch:
    """The indices of a batch's pairs, and the source and target widths that they are padded to."""

    pairs: np.ndarray
    shape: Shape


def bucket_shapes(lengths: np.ndarray, *, max_buckets: int = FEW_BUCKETS, multiple: int = 4) -> list[Shape]:
    """Source and target widths of the buckets for lengths (N, 2), each about √2 times wider than the last."""
    longer_side = lengths.max(axis=1)
    widest = lengths.max(axis=0)
    shapes = set()
    for bucket in range(max_buckets):
        fitting = lengths[longer_side <= math.ceil(longer_side.max() * 2 ** (-bucket / 2))]
        if len(fitting):
            source, target = np.minimum(-(-fitting.max(axis=0) // multiple) * multiple, widest)
            shapes.add((int(source), int(target)))
    return sorted(shapes)


class BatchPlan:
    """The batches of every epoch over pairs of the given lengths."""

    def __init__(
        self, lengths: np.ndarray, *, max_tokens: int, seed: int, shapes: Sequence[Shape] = ()
    ) -> None:
        self.shapes = list(shapes or bucket_shapes(lengths))
        fits = [(lengths[:, 0] <= source) & (lengths[:, 1] <= target) for source, target in self.shapes]
        self._bucket_of_pair = np.argmax(np.stack(fits), axis=0).astype(np.int16)
        counts = [max(1, max_tokens // max(shape)) for shape in self.shapes]
        # GPUs multiply faster if a large number of rows is a multiple of 8.
        self._batch_sizes = [count - count % 8 if count >= 256 else count for count in counts]
        self.min_batch_size = min(self._batch_sizes)  # the number of pairs in a batch of the longest
        self._seed = seed
        self._cached_epoch: tuple[int, list[Batch]] = (-1, [])
        self.batches_per_epoch = leftover = 0
        for bucket, rows in enumerate(self._batch_sizes):
            full, leftover = divmod(leftover + int((self._bucket_of_pair == bucket).sum()), rows)
            self.batches_per_epoch += full
        self.batches_per_epoch += leftover > 0

    def epoch_batches(self, epoch: int) -> list[Batch]:
        """The batches of an epoch, shuffled."""
        rng = np.random.default_rng([self._seed, epoch])
        order = rng.permutation(len(self._bucket_of_pair))
        buckets = self._bucket_of_pair[order]
        batches: list[Batch] = []
        leftover = order[:0]
        for bucket, (shape, rows) in enumerate(zip(self.shapes, self._batch_sizes, strict=True)):
            members = np.concatenate([leftover, order[buckets == bucket]])
            full = len(members) // rows * rows
            batches += [Batch(members[i : i + rows], shape) for i in range(0, full, rows)]
            leftover = members[full:]
        if len(leftover):
            batches.append(
                Batch(np.resize(np.concatenate([leftover, order]), self._batch_sizes[-1]), self.shapes[-1])
            )
        return [batches[i] for i in rng.permutation(len(batches))]

    def batch(self, number: int) -> Batch:
        """The batch with this number, counted from 0 over all epochs."""
        epoch, index = divmod(number, self.batches_per_epoch)
        if self._cached_epoch[0] != epoch:
            self._cached_epoch = (epoch, self.epoch_batches(epoch))
        return self._cached_epoch[1][index]
