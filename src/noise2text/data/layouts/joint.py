"""Source and target on one canvas (DiffuSeq, section 3):

    [BOS] source [SEP] target [EOS] [PAD] … [PAD]

The canvas is always full: padding is generated and learned like any other token, and it decides the length.
So nothing is marked as `padding`; the source, [BOS] and [SEP] are given, everything after them is scored.
Only what is not given is noised: DiffuSeq's partial noising.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.batching import FEW_BUCKETS
from noise2text.data.layouts.base import Canvas, Layout, Source, count_before, give_tokens
from noise2text.data.ragged import RaggedRows

__all__ = ["NUM_SPECIAL_TOKENS", "InfillingLayout", "JointLayout", "PairGenerationLayout"]

NUM_SPECIAL_TOKENS = 3  # begin, separator, end


@dataclass(frozen=True)
class JointLayout(Layout):
    """Source and target side by side; the source is given, the rest of the canvas is generated."""

    bos: int
    sep: int
    eos: int
    width: int  # of every canvas

    num_special_tokens: ClassVar[int] = NUM_SPECIAL_TOKENS

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return (self.eos, self.pad)

    @property
    def has_no_padding(self) -> bool:
        return True

    def batch_shapes(self, lengths: np.ndarray, *, max_buckets: int = FEW_BUCKETS) -> list[tuple[int, int]]:
        """One shape: the canvas is always full."""
        return [(int(lengths[:, 0].max()), int(lengths[:, 1].max()))]

    def make_canvas(
        self, sources: RaggedRows, targets: RaggedRows, *, shape: tuple[int, int] = (0, 0)
    ) -> Canvas:
        longest = self.required_width(sources, targets)
        if longest > self.width:
            raise Problem(
                f"A pair needs {longest} positions, but the canvas has {self.width}; "
                f"prepare the corpus with this model's max_source and max_target, or raise them."
            )
        source = self.make_source(sources, width=shape[0])
        empty = self.make_empty_canvas(source, torch.zeros(len(sources), 1), width=0)
        words, padding = targets.pad_to(1, pad=self.pad)  # (B, N)
        words = torch.cat([words, torch.full_like(words[:, :1], self.pad)], 1)
        words.scatter_(1, (~padding).sum(1, keepdim=True), self.eos)
        target_starts = empty.given.sum(1, keepdim=True)
        position = torch.arange(self.width) - target_starts  # counted from the target's start
        inside = (position >= 0) & (position < words.shape[1])
        written = words.gather(1, position.clamp(0, words.shape[1] - 1))
        return replace(empty, tokens=torch.where(inside, written, empty.tokens))

    def make_empty_canvas(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """The sources and an empty rest; `lengths` gives only the number of candidates per source."""
        rows, room = source.tokens.shape
        end = self.separator_positions(source)
        tokens = source.tokens.new_full((rows, self.width), self.pad)
        tokens[:, 0] = self.bos
        used = min(room, self.width - 1)  # a batch may be padded to more than the canvas has
        tokens[:, 1 : used + 1] = source.tokens[:, :used]
        tokens.scatter_(1, end, self.sep)
        given = torch.arange(self.width, device=tokens.device) <= end
        tokens, given = (each.repeat_interleave(lengths.shape[1], 0) for each in (tokens, given))
        return Canvas(tokens, given, torch.zeros_like(given), ~given, source)

    def separator_positions(self, source: Source) -> Tensor:
        """The position of each separator, (B, 1)."""
        return (~source.padding).sum(1, keepdim=True) + 1

    def required_width(self, sources: RaggedRows, targets: RaggedRows) -> int:
        """The number of positions that the longest pair needs."""
        return int((sources.lengths + targets.lengths).max()) + self.num_special_tokens

    def non_padding_mask(self, canvas: Canvas) -> Tensor:
        """Where the scored token is the text or its end, not the padding after it."""
        return canvas.scored & (canvas.tokens != self.pad)

    def without_source(self, canvas: Canvas) -> Canvas:
        """The canvas with padding instead of the source; a given prefix of the target stays."""
        ends = self._candidate_separator_positions(canvas)
        positions = torch.arange(self.width, device=ends.device)
        return replace(
            canvas, tokens=canvas.tokens.masked_fill((positions > 0) & (positions < ends), self.pad)
        )  # `source` stays, because it says where the target begins

    def end_text_at(self, canvas: Canvas, ends: Tensor) -> Canvas:
        return give_tokens(canvas, [self.eos] + [self.pad] * self.width, ends)

    def target_mask(self, canvas: Canvas) -> Tensor:
        return torch.arange(
            canvas.tokens.shape[1], device=canvas.tokens.device
        ) > self._candidate_separator_positions(canvas)

    def extract_targets(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        spans = self.locate_targets(canvas, tokens)
        return [row[span] for row, span in zip(tokens.tolist(), spans, strict=True)]

    def locate_targets(self, canvas: Canvas, tokens: Tensor) -> list[slice]:
        start = self._candidate_separator_positions(canvas)[:, 0] + 1
        ends = ((tokens == self.eos) | (tokens == self.pad)) & self.target_mask(canvas)
        stop = torch.where(ends.any(1), ends.int().argmax(1), tokens.shape[1])
        return list(map(slice, start.tolist(), stop.tolist()))

    def _candidate_separator_positions(self, canvas: Canvas) -> Tensor:
        """The position of each candidate's separator, (B·C, 1)."""
        candidates = len(canvas.tokens) // len(canvas.source.tokens)
        return self.separator_positions(canvas.source).repeat_interleave(candidates, 0)


@dataclass(frozen=True)
class InfillingLayout(JointLayout):
    """The same canvas, all of it learned: the source is given only in generation (Diffusion-LM).

    `given_source` is the share of the training pairs whose source is given, as in generation; 0 is the
    published form.
    """

    given_source: float = 0.0

    def randomize(self, canvas: Canvas, u: Tensor) -> Canvas:
        """The canvas with the source given in the rows whose u is below `given_source`."""
        source = (u < self.given_source)[:, None] & ~self.target_mask(canvas)
        return replace(canvas, given=canvas.given | source, scored=canvas.scored & ~source)

    def make_canvas(
        self, sources: RaggedRows, targets: RaggedRows, *, shape: tuple[int, int] = (0, 0)
    ) -> Canvas:
        canvas = super().make_canvas(sources, targets, shape=shape)
        return replace(canvas, given=torch.zeros_like(canvas.given), scored=torch.ones_like(canvas.scored))

    def generation_rounds(self, canvas: Canvas) -> Iterator[Canvas]:
        """The canvas whose source is given, as in generation."""
        target = self.target_mask(canvas)
        yield replace(canvas, given=~target, scored=target)


class PairGenerationLayout(JointLayout):
    """The same canvas with only [BOS] given: source and target are both generated."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return (self.pad,) if self.eos == self.sep else super().end_tokens

    def make_empty_canvas(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """One empty canvas per candidate; sources and lengths give only their number."""
        tokens = source.tokens.new_full((lengths.numel(), self.width), self.pad)
        tokens[:, 0] = self.bos
        given = torch.zeros_like(tokens, dtype=torch.bool)
        given[:, 0] = True
        return Canvas(tokens, given, torch.zeros_like(given), ~given, source)

    def extract_targets(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        """Source, separator and target of each row, up to the first end or padding."""
        return super().extract_targets(canvas, tokens)

    def locate_targets(self, canvas: Canvas, tokens: Tensor) -> list[slice]:
        written = tokens[:, 1:]
        separates = (written == self.sep) & ((written == self.sep).cumsum(1) == 1)
        ended = ((written == self.eos) & ~separates) | (written == self.pad)  # BERT uses [SEP] for both
        return [slice(1, 1 + length) for length in count_before(ended)]
