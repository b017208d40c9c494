"""Templates: the given pieces of a text, and the gaps between them that are generated.

    "1957-___-07"        given pieces and an open gap, which gets the rest of the length
    "___{4}-04-___{2}"   gaps of exactly four and two tokens

Three or more underscores are a gap. Where the space before a word belongs to its first token (byte-level
BPE), the space before a gap belongs to the gap. The template of a prefix is `prefix___`, that of a suffix
`___suffix`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem, abbreviate
from noise2text.data.tokenizer import Tokenizer

__all__ = ["OPEN_TEMPLATE", "Template", "encode_pieces", "make_template", "parse_template"]

MAX_DIGITS = 9
"""The most digits of a gap's width."""

_GAP = re.compile(r"_{3,}(?:\{(\d+)\})?")


@dataclass(frozen=True)
class Template:
    """Given pieces of tokens, which may be empty, and the width of the gap after each; None if it is open."""

    pieces: tuple[tuple[int, ...], ...]
    gaps: tuple[int | None, ...]  # one fewer than pieces

    @property
    def num_given(self) -> int:
        """The number of given tokens."""
        return sum(map(len, self.pieces))

    @property
    def min_length(self) -> int:
        """The length of the shortest text that fits; an open gap has at least one token."""
        return self.num_given + sum(1 if gap is None else gap for gap in self.gaps)

    @property
    def is_exact(self) -> bool:
        """Whether exactly one length fits."""
        return None not in self.gaps

    @property
    def has_fixed_positions(self) -> bool:
        """Whether the position of every piece is known without the length: only the end may be open."""
        return None not in self.gaps[:-1] and (self.is_exact or not self.pieces[-1])

    def fit_lengths(self, lengths: Tensor, max_length: int) -> Tensor:
        """The lengths (B, C) with too short ones replaced by the shortest that fit, in ascending order."""
        if self.is_exact:
            return torch.full_like(lengths, self.min_length)
        short = lengths < self.min_length
        return torch.where(short, (self.min_length - 1 + short.cumsum(1)).clamp(max=max_length), lengths)

    def locate_pieces(self, lengths: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        """Each piece and where it starts in texts of these lengths (B,).

        Open gaps share the remaining tokens evenly; the first ones get one more where there is a remainder.
        """
        rest, num_open = lengths - self.min_length, sum(gap is None for gap in self.gaps)
        start, number = lengths * 0, 0
        for piece, gap in zip(self.pieces, (*self.gaps, 0), strict=True):
            yield piece, start
            start = start + len(piece)
            if gap is None:
                start = start + 1 + (rest + num_open - 1 - number) // num_open
                number += 1
            else:
                start = start + gap

    def concatenate(self, separator: int, other: Template) -> Template:
        """This template, a separator, and another template after it."""
        joint = (*self.pieces[-1], separator, *other.pieces[0])
        return Template((*self.pieces[:-1], joint, *other.pieces[1:]), (*self.gaps, *other.gaps))


OPEN_TEMPLATE = Template(((), ()), (None,))
"""Nothing is given."""


def parse_template(text: str, tokenizer: Tokenizer) -> Template:
    """The template that a text describes; without a gap, all of the text is given."""
    parts = _GAP.split(text)
    if any(width is not None and len(width) > MAX_DIGITS for width in parts[1::2]):
        raise Problem(f"The template {abbreviate(text)} has a gap of more tokens than any model has.")
    widths = [None if width is None else int(width) for width in parts[1::2]]
    if 0 in widths:
        raise Problem(f"The template {abbreviate(text)} has a gap of no tokens; a gap has at least 1.")
    texts = [text.rstrip() if tokenizer.attaches_leading_space else text for text in parts[:-1:2]]
    return Template(encode_pieces([*texts, parts[-1]], tokenizer), tuple(widths))


def make_template(generation_config: Any, tokenizer: Tokenizer, max_length: int) -> Template | None:
    """The template of the settings `template`, or `prefix` and `suffix`; None if nothing is given.

    It leaves something to generate in texts of the setting `length`, or of at most `max_length` tokens.
    """
    if not (generation_config.template or generation_config.prefix or generation_config.suffix):
        return None
    length = getattr(generation_config, "length", None)
    max_length = length or max_length
    if generation_config.template:
        given = parse_template(generation_config.template, tokenizer)
        if not given.gaps:
            raise Problem(
                f"The template {abbreviate(generation_config.template)} has no gap; mark what is to be "
                f"written by ___."
            )
    else:
        given = Template(
            encode_pieces([generation_config.prefix, generation_config.suffix], tokenizer), (None,)
        )
    if given.num_given >= max_length:
        raise Problem(
            f"What is given has {given.num_given} of {max_length} tokens: that leaves nothing to write."
        )
    if given.min_length > max_length:
        raise Problem(f"The template needs {given.min_length} tokens, but there is room for {max_length}.")
    if given.is_exact and length not in (None, given.min_length):
        raise Problem(f"The template has {given.min_length} tokens, but the length is to be {length}.")
    return given


def encode_pieces(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of the given pieces; a Problem if the vocabulary lacks one of their characters."""
    rows = tokenizer.encode(texts)
    for text, row in zip(texts, rows, strict=True):
        if tokenizer.unk in row:
            raise Problem(
                f"The given text {abbreviate(text)} has a character that this model's vocabulary lacks."
            )
    return tuple(map(tuple, rows))
