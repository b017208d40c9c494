"""Word generation (thesis on DiffuSeq for translation, 3.2.2): a walk writes the next word.

Only for models that were trained to do so (`text.next_word`). A word is what stands before the first padding;
a text ends with the word before [EOS], or where no word is written. So every walk adds a token or is a row's
last, and the loop ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from noise2text.data.layouts.canvas import Canvas
from noise2text.data.layouts.next_word import NextWordLayout
from noise2text.generation.autoregressive_diffusion import AutoregressiveDiffusionDecoder, open_positions

__all__ = ["WordByWordDecoder"]


@dataclass(frozen=True)
class WordByWordDecoder(AutoregressiveDiffusionDecoder):
    """Keeps all that was written before the first mark; the end, or nothing before a mark, ends a row."""

    layout: NextWordLayout

    def select_new_tokens(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        positions = open_positions(canvas)
        marks = positions & ((tokens == self.layout.eos) | (tokens == self.layout.pad))
        before, first = positions & (marks.cumsum(1) == 0), marks & (marks.cumsum(1) == 1)
        finished = (first & (tokens == self.layout.eos)).any(1) | ~before.any(1)
        return before | (first & finished[:, None]), finished

    def fix_tokens(self, canvas: Canvas, tokens: Tensor, kept: Tensor, finished: Tensor) -> Canvas:
        return self.layout.limit_to_next_word(super().fix_tokens(canvas, tokens, kept, finished))
