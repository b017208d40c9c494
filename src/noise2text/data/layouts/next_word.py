"""The next word after the source and the words so far (Demirag, 2023, algorithm 9):

    [BOS] source [SEP] word … word │ next word [PAD] … [PAD]        and after the last word [EOS]

Everything left of │ is given, everything right of it is generated: padding ends a word, [EOS] ends the text.
Each training step shows one random word of each pair. A table says which tokens begin a word; the first token
of a target always does. At most `max_word_tokens` positions are generated at once: Demirag used the whole
canvas, 95 % of which was padding, and its model learned to generate nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Canvas, Source
from noise2text.data.layouts.joint import JointLayout
from noise2text.data.layouts.template import Template
from noise2text.data.tokenizer import Tokenizer

__all__ = ["WORD_START_RULES", "NextWordLayout"]


def _tokens_with_leading_space(tokenizer: Tokenizer) -> list[int]:
    """Tokens that start with white space or, in WordPiece, are not marked as continuations."""
    marks_continuations = tokenizer.marks_continuations
    return [
        token
        for token, text in enumerate(tokenizer.token_texts)
        if (not text.startswith("##") if marks_continuations else text[:1].isspace())
    ]


def _tokens_with_leading_sign(tokenizer: Tokenizer) -> list[int]:
    """Tokens that do not start with a letter or digit: 1957-04-07 has the words 1957, -04 and -07."""
    return [token for token, text in enumerate(tokenizer.token_texts) if text and not text[0].isalnum()]


WORD_START_RULES = {"spaces": _tokens_with_leading_space, "signs": _tokens_with_leading_sign}
"""Rules for which tokens begin a word, by name."""


@dataclass(frozen=True)
class NextWordLayout(JointLayout):
    """The source and the words so far are given, the next word is generated: `max_word_tokens` positions."""

    word_start_tokens: tuple[int, ...]
    max_word_tokens: int

    @property
    def has_no_padding(self) -> bool:
        return False

    def randomise(self, canvas: Canvas, u: Tensor) -> Canvas:
        """The canvas up to one word of each target, which is to be generated; u chooses the word."""
        positions = torch.arange(self.width, device=u.device)
        first = canvas.frozen.sum(1, keepdim=True)  # where the target starts
        text = (positions > first) & (canvas.tokens != self.eos) & (canvas.tokens != self.pad)
        is_word_start = (positions == first) | (
            text & torch.isin(canvas.tokens, self._word_start_tensor(u.device))
        )
        word = is_word_start.cumsum(1)  # (B, L), counted from 1; the end belongs to the last
        chosen = torch.floor(u[:, None] * word[:, -1:]) + 1
        tokens = torch.where(word <= chosen, canvas.tokens, self.pad)
        return self.limit_to_next_word(replace(canvas, tokens=tokens, frozen=word < chosen))

    def make_empty_canvas(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        return self.limit_to_next_word(super().make_empty_canvas(source, lengths, width=width))

    def apply_template(self, canvas: Canvas, template: Template) -> Canvas:
        if template.gaps != (None,) or template.pieces[-1]:
            raise Problem(
                "This model generates word by word to its own end: it takes a prefix, but no suffix."
            )
        return self.limit_to_next_word(super().apply_template(canvas, template))

    def limit_to_next_word(self, canvas: Canvas) -> Canvas:
        """The canvas that shows and generates only `max_word_tokens` positions after the given ones."""
        positions = torch.arange(self.width, device=canvas.tokens.device)
        padding = positions >= canvas.frozen.sum(1, keepdim=True) + self.max_word_tokens
        return replace(canvas, padding=padding, scored=~(canvas.frozen | padding))

    def _word_start_tensor(self, device: torch.device) -> Tensor:
        return torch.tensor(self.word_start_tokens, dtype=torch.long, device=device)
