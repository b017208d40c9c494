"""Templates: what is given of a text, and the gaps between that are left to write.

    "1957-___-07"        given pieces and an open gap, which takes what the length leaves
    "___{4}-04-___{2}"   gaps of exactly four and two tokens

Three or more underscores are a gap. Where a word brings the space before it along (byte-level BPE), the space
before a gap belongs to the gap. A prefix is the template `prefix___`, a suffix the template `___suffix`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer

__all__ = ["OPEN", "Template", "encode_pieces", "find_template", "parse_template"]

_GAP = re.compile(r"_{3,}(?:\{(\d+)\})?")


@dataclass(frozen=True)
class Template:
    """Given pieces of tokens, any of them empty, and the gap between each two: its width, or none if open."""

    pieces: tuple[tuple[int, ...], ...]
    gaps: tuple[int | None, ...]  # one fewer

    @property
    def held(self) -> int:
        """How many tokens are given."""
        return sum(map(len, self.pieces))

    @property
    def least(self) -> int:
        """The length of the shortest text that fits: an open gap has at least one token."""
        return self.held + sum(1 if gap is None else gap for gap in self.gaps)

    @property
    def is_exact(self) -> bool:
        """Whether only one length fits."""
        return None not in self.gaps

    @property
    def is_open(self) -> bool:
        """Whether the place of every piece is known without the length: only the very end may be open."""
        return None not in self.gaps[:-1] and (self.is_exact or not self.pieces[-1])

    def fit(self, lengths: Tensor, room: int) -> Tensor:
        """Lengths (B, C) that the template can have: instead of too short ones the least, the next, …"""
        if self.is_exact:
            return torch.full_like(lengths, self.least)
        short = lengths < self.least
        return torch.where(short, (self.least - 1 + short.cumsum(1)).clamp(max=room), lengths)

    def placed(self, lengths: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        """Each piece and where it starts in texts of these lengths (B,); open gaps share what is left evenly,
        the first of them one more where that does not come out even."""
        rest, opened = lengths - self.least, sum(gap is None for gap in self.gaps)
        start, number = lengths * 0, 0
        for piece, gap in zip(self.pieces, (*self.gaps, 0), strict=True):
            yield piece, start
            start = start + len(piece)
            if gap is None:
                start = start + 1 + (rest + opened - 1 - number) // opened
                number += 1
            else:
                start = start + gap

    def then(self, mark: int, other: Template) -> Template:
        """This template, a mark, and another template after it."""
        joint = (*self.pieces[-1], mark, *other.pieces[0])
        return Template((*self.pieces[:-1], joint, *other.pieces[1:]), (*self.gaps, *other.gaps))


OPEN = Template(((), ()), (None,))
"""Nothing is given."""


def parse_template(text: str, tokenizer: Tokenizer) -> Template:
    """The template that a text describes; one without gaps gives all of the text."""
    parts = _GAP.split(text)
    widths = [None if width is None else int(width) for width in parts[1::2]]
    if 0 in widths:
        raise Problem(f"The template {text!r} has a gap of no tokens; a gap has at least 1.")
    texts = [text.rstrip() if tokenizer.joins_spaces else text for text in parts[:-1:2]]
    return Template(encode_pieces([*texts, parts[-1]], tokenizer), tuple(widths))


def find_template(how: Any, tokenizer: Tokenizer, room: int) -> Template:
    """What the settings `template`, or `prefix` and `suffix`, give; it must leave something to write."""
    if not (how.template or how.prefix or how.suffix):
        return OPEN
    if how.template:
        given = parse_template(how.template, tokenizer)
        if not given.gaps:
            raise Problem(f"The template {how.template!r} has no gap; mark what is to be written by ___.")
    else:
        given = Template(encode_pieces([how.prefix, how.suffix], tokenizer), (None,))
    if given.held >= room:
        raise Problem(f"What is given has {given.held} of {room} tokens: that leaves nothing to write.")
    if given.least > room:
        raise Problem(f"The template needs {given.least} tokens, but there is room for {room}.")
    length = getattr(how, "length", None)
    if given.is_exact and length not in (None, given.least):
        raise Problem(f"The template has {given.least} tokens, but the length is to be {length}.")
    return given


def encode_pieces(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of given pieces, each of which the vocabulary must be able to write."""
    rows = tokenizer.encode(texts)
    for text, row in zip(texts, rows, strict=True):
        if tokenizer.unk in row:
            raise Problem(f"The given text {text!r} has a character that this model's vocabulary lacks.")
    return tuple(map(tuple, rows))
