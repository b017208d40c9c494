"""The next word after the source and the words so far (thesis on DiffuSeq for translation, algorithm 9):

    [BOS] source [SEP] word … word │ next word [PAD] … [PAD]        and after the last word [EOS]

All to the left of │ is given, all to the right is written, so that padding ends a word, and [EOS] the text.
Training shows one word of each pair, drawn by chance. Which tokens begin a word is a table; the first token
of a target always does. At most `reach` places are written and seen at once: the thesis had the whole canvas,
95 % of which was padding, and learned to write nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Canvas, Source
from noise2text.data.layouts.joint import Joint
from noise2text.data.layouts.template import Template
from noise2text.data.tokenizer import Tokenizer

__all__ = ["WORDS", "NextWord"]


def _spaced(tokenizer: Tokenizer) -> list[int]:
    """Tokens that bring white space along, or are not marked as going on."""
    going_on = tokenizer.marks_continuations
    return [
        token
        for token, text in enumerate(tokenizer.spellings)
        if (not text.startswith("##") if going_on else text[:1].isspace())
    ]


def _signed(tokenizer: Tokenizer) -> list[int]:
    """Tokens that do not start with a letter or digit: 1957-04-07 has the words 1957, -04 and -07."""
    return [token for token, text in enumerate(tokenizer.spellings) if text and not text[0].isalnum()]


WORDS = {"spaces": _spaced, "signs": _signed}
"""Which tokens begin a word, by name."""


@dataclass(frozen=True)
class NextWord(Joint):
    """Source and words so far given, the next word written within `reach` places."""

    begins: tuple[int, ...]
    reach: int

    @property
    def full(self) -> bool:
        return False

    def vary(self, canvas: Canvas, u: Tensor) -> Canvas:
        """The canvas up to a word of each target, that word being written; u chooses which."""
        places = torch.arange(self.width, device=u.device)
        first = canvas.frozen.sum(1, keepdim=True)  # where the target starts
        text = (places > first) & (canvas.tokens != self.end) & (canvas.tokens != self.pad)
        begins = (places == first) | (text & torch.isin(canvas.tokens, self._begins(u.device)))
        word = begins.cumsum(1)  # (B, L), counted from 1; the end belongs to the last
        chosen = torch.floor(u[:, None] * word[:, -1:]) + 1
        tokens = torch.where(word <= chosen, canvas.tokens, self.pad)
        return self.within(replace(canvas, tokens=tokens, frozen=word < chosen))

    def prompt(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        return self.within(super().prompt(source, lengths, width=width))

    def give(self, canvas: Canvas, template: Template) -> Canvas:
        if template.gaps != (None,) or template.pieces[-1]:
            raise Problem(
                "This system writes word after word to its own end: it takes a prefix, but no suffix."
            )
        return self.within(super().give(canvas, template))

    def within(self, canvas: Canvas) -> Canvas:
        """The canvas on which only `reach` places after the given ones are written and seen."""
        places = torch.arange(self.width, device=canvas.tokens.device)
        padding = places >= canvas.frozen.sum(1, keepdim=True) + self.reach
        return replace(canvas, padding=padding, scored=~(canvas.frozen | padding))

    def _begins(self, device: torch.device) -> Tensor:
        return torch.tensor(self.begins, dtype=torch.long, device=device)
