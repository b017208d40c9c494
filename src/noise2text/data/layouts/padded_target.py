"""A canvas of fixed width: the target, [EOS], then [PAD] up to the width (SeqDiffuSeq, table 7).

Nothing on it is padding to the network: [EOS] and [PAD] are generated and learned like any other token, so
the model decides the length. The text is what comes before the first [EOS] or [PAD].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noise2text.data.batching import FEW_BUCKETS, bucket_shapes
from noise2text.data.layouts.base import Canvas, Layout, Source, count_before, give_tokens
from noise2text.data.ragged import RaggedRows

__all__ = ["PaddedTargetLayout"]


@dataclass(frozen=True)
class PaddedTargetLayout(Layout):
    """Source and target apart; the canvas always has `width` positions."""

    eos: int
    width: int

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return (self.eos, self.pad)

    def batch_shapes(self, lengths: np.ndarray, *, max_buckets: int = FEW_BUCKETS) -> list[tuple[int, int]]:
        """Shapes with several source widths and one target width."""
        return bucket_shapes(
            np.stack([lengths[:, 0], np.full(len(lengths), self.width)], axis=1), max_buckets=max_buckets
        )

    def make_canvas(
        self, sources: RaggedRows, targets: RaggedRows, *, shape: tuple[int, int] = (0, 0)
    ) -> Canvas:
        """The canvas of training pairs; a target longer than `width` − 1 is truncated, so that [EOS] fits."""
        tokens = targets.pad_to(self.width, pad=self.pad)[0][:, : self.width]  # (B, L)
        ends = torch.from_numpy(targets.lengths).clamp(max=self.width - 1)[:, None]
        return self._make_canvas(tokens.scatter(1, ends, self.eos), self.make_source(sources, width=shape[0]))

    def make_empty_canvas(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """One empty canvas per candidate; `lengths` gives only their number."""
        return self._make_canvas(lengths.new_full((lengths.numel(), self.width), self.pad), source)

    def end_text_at(self, canvas: Canvas, ends: Tensor) -> Canvas:
        return give_tokens(canvas, [self.eos] + [self.pad] * self.width, ends)

    def extract_targets(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        lengths = count_before((tokens == self.eos) | (tokens == self.pad))
        return [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)]

    def non_padding_mask(self, canvas: Canvas) -> Tensor:
        """Where the canvas has the target or its end, not padding."""
        return canvas.tokens != self.pad

    def _make_canvas(self, tokens: Tensor, source: Source) -> Canvas:
        """A canvas of which every position is generated, visible and scored."""
        nowhere = torch.zeros_like(tokens, dtype=torch.bool)
        return Canvas(tokens=tokens, given=nowhere, padding=nowhere, scored=~nowhere, source=source)
