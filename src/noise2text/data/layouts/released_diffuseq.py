"""The canvas of DiffuSeq's released code, which keeps the special tokens of BERT's tokenizer on both texts:

    [CLS] source [SEP] [SEP] [CLS] target [SEP] [PAD] … [PAD]

That code also generates the target's [CLS], which is always the same; here it is given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from noise2text.data.layouts.base import Canvas, Source
from noise2text.data.layouts.joint import JointLayout

__all__ = ["ReleasedDiffuSeqLayout"]


class ReleasedDiffuSeqLayout(JointLayout):
    """Source and target side by side, with two separators and a second beginning between them."""

    num_special_tokens: ClassVar[int] = 5

    def make_empty_canvas(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """The sources and an empty rest; `lengths` gives only the number of candidates per source."""
        canvas = super().make_empty_canvas(source, lengths, width=width)
        last = canvas.given.sum(1, keepdim=True) - 1  # (B·C, 1), of what is given
        tokens = canvas.tokens.scatter(1, last - 2, self.sep).scatter(1, last - 1, self.sep)
        return replace(canvas, tokens=tokens.scatter(1, last, self.bos))

    def separator_positions(self, source: Source) -> Tensor:
        """The position of the last token before each target, (B, 1)."""
        return super().separator_positions(source) + 2
