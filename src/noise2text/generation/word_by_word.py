"""Word generation (thesis on DiffuSeq for translation, 3.2.2): a walk writes the next word.

Only for models that were trained to do so (`text.next_word`). A word is what stands before the first padding;
a text ends with the word before [EOS], or where no word is written. So every walk adds a token or is a row's
last, and the loop ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from noise2text.data.layouts.canvas import Canvas
from noise2text.data.layouts.next_word import NextWord
from noise2text.generation.autoregressive_diffusion import Growing, open_places

__all__ = ["WordByWord"]


@dataclass(frozen=True)
class WordByWord(Growing):
    """Keeps all that was written before the first mark; the end, or nothing before a mark, ends a row."""

    layout: NextWord

    def part(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        places = open_places(canvas)
        marks = places & ((tokens == self.layout.end) | (tokens == self.layout.pad))
        before, first = places & (marks.cumsum(1) == 0), marks & (marks.cumsum(1) == 1)
        over = (first & (tokens == self.layout.end)).any(1) | ~before.any(1)
        return before | (first & over[:, None]), over

    def grow(self, canvas: Canvas, tokens: Tensor, kept: Tensor, over: Tensor) -> Canvas:
        return self.layout.within(super().grow(canvas, tokens, kept, over))
