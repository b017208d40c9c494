"""The next word after the source and the words so far (Demirag, 2023, algorithm 9):

    [BOS] source [SEP] word … word │ next word [PAD] … [PAD]        and after the last word [EOS]

Everything left of │ is given, everything right of it is generated: padding ends a word, [EOS] ends the text.
Each training step shows one random word of each pair. A table says which tokens begin a word; the first token
of a target always does. At most `max_word_tokens` positions are generated at once: Demirag used the whole
canvas, 95 % of which was padding, and its model learned to generate nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
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

    def randomize(self, canvas: Canvas, u: Tensor) -> Canvas:
        """The canvas up to one word of each target, which is to be generated; u chooses the word."""
        word = self._word_numbers(canvas)
        return self._up_to_word(canvas, word, torch.floor(u[:, None] * word[:, -1:]) + 1)

    def generation_rounds(self, canvas: Canvas) -> Iterator[Canvas]:
        """One canvas per word, with the words before it given; texts of fewer words generate nothing more.

        A word of more than `max_word_tokens` tokens takes several rounds.
        """
        word = self._word_numbers(canvas)
        position = torch.arange(self.width, device=word.device).expand_as(word)
        starts = torch.where(word.diff(dim=1, prepend=torch.zeros_like(word[:, :1])) > 0, position, 0)
        in_word = position - starts.cummax(1).values
        is_next_piece = (in_word > 0) & (in_word % self.max_word_tokens == 0) & (canvas.tokens != self.pad)
        word = word + (is_next_piece & (word > 0)).cumsum(1)
        for number in range(1, int(word.max()) + 1):
            round_canvas = self._up_to_word(canvas, word, torch.full_like(word[:, :1], number))
            ended = word[:, -1:] < number
            yield replace(round_canvas, given=round_canvas.given | ended, scored=round_canvas.scored & ~ended)

    def _word_numbers(self, canvas: Canvas) -> Tensor:
        """The number of the word that each position belongs to, (B, L): 0 before the target, then from 1.

        The end belongs to the last word.
        """
        positions = torch.arange(self.width, device=canvas.tokens.device)
        first = canvas.given.sum(1, keepdim=True)  # where the target starts
        text = (positions > first) & (canvas.tokens != self.eos) & (canvas.tokens != self.pad)
        starts_word = torch.isin(canvas.tokens, self._word_start_tensor(canvas.tokens.device))
        return ((positions == first) | (text & starts_word)).cumsum(1)

    def _up_to_word(self, canvas: Canvas, word: Tensor, chosen: Tensor) -> Canvas:
        """The canvas up to the chosen word (B, 1), which is to be generated."""
        tokens = torch.where(word <= chosen, canvas.tokens, self.pad)
        return self.limit_to_next_word(replace(canvas, tokens=tokens, given=word < chosen))

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
        padding = positions >= canvas.given.sum(1, keepdim=True) + self.max_word_tokens
        return replace(canvas, padding=padding, scored=~(canvas.given | padding))

    def _word_start_tensor(self, device: torch.device) -> Tensor:
        return torch.tensor(self.word_start_tokens, dtype=torch.long, device=device)
