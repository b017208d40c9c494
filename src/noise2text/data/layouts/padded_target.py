"""A canvas of fixed width that ends itself: the target, [EOS], then [PAD] to the brim (SeqDiffuSeq, table 7).

Nothing on it is padding to the network: the end and what follows are written and learned like any token, and
so the model decides the length. What comes before the first [EOS] or [PAD] is the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noise2text.data.batching import FEW_BUCKETS, bucket_shapes
from noise2text.data.layouts.base import Canvas, Layout, Source, freeze_tokens
from noise2text.data.ragged import RaggedRows

__all__ = ["PaddedTargetLayout"]


@dataclass(frozen=True)
class PaddedTargetLayout(Layout):
    """Source and target apart; the target's canvas is `width` wide whatever the target."""

    eos: int
    width: int

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return (self.eos, self.pad)

    def batch_shapes(self, lengths: np.ndarray, *, max_buckets: int = FEW_BUCKETS) -> list[tuple[int, int]]:
        """Sources of several widths; the target's is always the same."""
        return bucket_shapes(
            np.stack([lengths[:, 0], np.full(len(lengths), self.width)], axis=1), max_buckets=max_buckets
        )

    def make_canvas(
        self, sources: RaggedRows, targets: RaggedRows, *, shape: tuple[int, int] = (0, 0)
    ) -> Canvas:
        """The canvas of training pairs; a target longer than `width` − 1 is cut, so that its end fits."""
        tokens = targets.pad_to(self.width, pad=self.pad)[0][:, : self.width]  # (B, L)
        ends = torch.from_numpy(targets.lengths).clamp(max=self.width - 1)[:, None]
        return self._make_canvas(tokens.scatter(1, ends, self.eos), self.make_source(sources, width=shape[0]))

    def make_prompt(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """An empty canvas for each candidate; the lengths only say how many there are."""
        return self._make_canvas(lengths.new_full((lengths.numel(), self.width), self.pad), source)

    def end_text_at(self, canvas: Canvas, ends: Tensor) -> Canvas:
        return freeze_tokens(canvas, [self.eos] + [self.pad] * self.width, ends)

    def extract_targets(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        ended = (tokens == self.eos) | (tokens == self.pad)
        lengths = (ended.cumsum(1) == 0).sum(1).tolist()
        return [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)]

    def non_padding_mask(self, canvas: Canvas) -> Tensor:
        """Where the canvas has the target or its end, not what fills it up."""
        return canvas.tokens != self.pad

    def _make_canvas(self, tokens: Tensor, source: Source) -> Canvas:
        """A canvas on which every position is written, seen and scored."""
        nowhere = torch.zeros_like(tokens, dtype=torch.bool)
        return Canvas(tokens=tokens, frozen=nowhere, padding=nowhere, scored=~nowhere, source=source)
