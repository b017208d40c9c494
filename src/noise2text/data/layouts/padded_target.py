"""A canvas of fixed width that ends itself: the target, [EOS], then [PAD] to the brim (SeqDiffuSeq, table 7).

Nothing on it is padding to the network: the end and what follows are written and learned like any token, and
so the model decides the length. What comes before the first [EOS] or [PAD] is the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noise2text.data.batching import FEW, ladder
from noise2text.data.layouts.canvas import Canvas, Layout, Source, hold_at
from noise2text.data.ragged import Rows

__all__ = ["Filled"]


@dataclass(frozen=True)
class Filled(Layout):
    """Source and target apart; the target's canvas is `width` wide whatever the target."""

    eos: int
    width: int

    @property
    def ends(self) -> tuple[int, ...]:
        return (self.eos, self.pad)

    def shapes(self, lengths: np.ndarray, *, rungs: int = FEW) -> list[tuple[int, int]]:
        """Sources of several widths; the target's is always the same."""
        return ladder(np.stack([lengths[:, 0], np.full(len(lengths), self.width)], axis=1), rungs=rungs)

    def canvas(self, sources: Rows, targets: Rows, *, shape: tuple[int, int] = (0, 0)) -> Canvas:
        """The canvas of training pairs; a target longer than `width` − 1 is cut, so that its end fits."""
        tokens = targets.padded(self.width, pad=self.pad)[0][:, : self.width]  # (B, L)
        ends = torch.from_numpy(targets.lengths).clamp(max=self.width - 1)[:, None]
        return self._open(tokens.scatter(1, ends, self.eos), self.source(sources, width=shape[0]))

    def prompt(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """An empty canvas for each candidate; the lengths only say how many there are."""
        return self._open(lengths.new_full((lengths.numel(), self.width), self.pad), source)

    def close(self, canvas: Canvas, ends: Tensor) -> Canvas:
        return hold_at(canvas, [self.eos] + [self.pad] * self.width, ends)

    def read(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        ended = (tokens == self.eos) | (tokens == self.pad)
        lengths = (ended.cumsum(1) == 0).sum(1).tolist()
        return [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)]

    def spoken(self, canvas: Canvas) -> Tensor:
        """Where the canvas has the target or its end, not what fills it up."""
        return canvas.tokens != self.pad

    def _open(self, tokens: Tensor, source: Source) -> Canvas:
        """A canvas on which every position is written, seen and scored."""
        nowhere = torch.zeros_like(tokens, dtype=torch.bool)
        return Canvas(tokens=tokens, frozen=nowhere, padding=nowhere, scored=~nowhere, source=source)
