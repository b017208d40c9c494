"""The micro-batches of each training step, on the device; the loop (loop.py) adds up their gradients."""

from __future__ import annotations

from typing import Any

import torch

from noise2text.core.random import KeyPurpose, make_key, uniform
from noise2text.data.batching import FEW_BUCKETS, MANY_BUCKETS, BatchPlan
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.data.token_store import TokenStore
from noise2text.training.process_group import ProcessGroup

__all__ = ["MicroBatches"]


class MicroBatches:
    """Called with a step, returns this process's share of each of its micro-batches.

    Which pairs these are, and the random choices of the layout, depend only on the seed, the step and the
    row.
    """

    def __init__(
        self, pairs: TokenStore, layout: Layout, *, config: Any, device: torch.device, group: ProcessGroup
    ) -> None:
        self.pairs, self.layout, self.device, self.group = pairs, layout, device, group
        self.seed, self.accumulate = config.run.seed, config.optim.accumulate
        max_buckets = FEW_BUCKETS if device.type == "cuda" else MANY_BUCKETS
        self.plan = BatchPlan(
            pairs.lengths,
            max_tokens=config.optim.max_tokens,
            seed=self.seed,
            shapes=layout.batch_shapes(pairs.lengths, max_buckets=max_buckets),
        )
        group.slice_rows(self.plan.min_batch_size)  # refuses a batch that is too small before training starts

    def __call__(self, step: int) -> list[Canvas]:
        first, row, canvases = (step - 1) * self.accumulate, 0, []
        for batch in (self.plan.batch(first + i) for i in range(self.accumulate)):
            own_rows = self.group.slice_rows(len(batch.pairs))
            source, target = self.pairs.get_pairs(batch.pairs[own_rows])
            canvas = self.layout.make_canvas(source, target, shape=batch.shape)
            rows = torch.arange(row, row + len(batch.pairs))[own_rows]
            keys = make_key(self.seed, KeyPurpose.LAYOUT, step, rows)
            canvases.append(self.layout.randomize(canvas, uniform(keys)).to(self.device))
            row += len(batch.pairs)
        return canvases
