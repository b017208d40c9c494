"""A target followed by [EOS], as autoregressive models need it.

The padding after [EOS] is neither visible nor scored. The text is what comes before the first [EOS].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.data.layouts.base import Canvas, count_before
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.ragged import RaggedRows

__all__ = ["SplitWithEndLayout"]


@dataclass(frozen=True)
class SplitWithEndLayout(SplitLayout):
    """Source and target apart; the target's last token is its end."""

    eos: int

    def make_canvas(
        self, sources: RaggedRows, targets: RaggedRows, *, shape: tuple[int, int] = (0, 0)
    ) -> Canvas:
        """The canvas of training pairs, one position wider than the targets."""
        width = max(shape[1], int(targets.lengths.max())) + 1
        tokens, _ = targets.pad_to(width, pad=self.pad)
        ends = torch.from_numpy(targets.lengths)[:, None]
        padding = torch.arange(width) > ends
        return Canvas(
            tokens=tokens.scatter(1, ends, self.eos),
            given=torch.zeros_like(padding),
            padding=padding,
            scored=~padding,
            source=self.make_source(sources, width=shape[0]),
        )

    def extract_targets(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        lengths = count_before(tokens == self.eos)
        return [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)]
