"""Layouts: how a pair of token rows becomes a canvas, and how the target is read off a canvas.

A canvas is what diffusion fills. Its masks say who uses which position: the networks ignore `padding`, the
losses count `scored`, and the tokens at `given` positions are neither noised nor changed, which is DiffuSeq's
partial noising.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from noise2text.core.devices import copy_to_device
from noise2text.core.errors import Problem
from noise2text.data.batching import FEW_BUCKETS, bucket_shapes
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import RaggedRows

__all__ = ["Canvas", "Layout", "Source", "count_before", "give_tokens"]


@dataclass(frozen=True)
class Source:
    """The condition of the model: one row per sentence."""

    tokens: Tensor  # (B, S)
    padding: Tensor  # (B, S), true where there is no token

    def to(self, device: torch.device | str) -> Source:
        """The same source on a device."""
        return self.map(partial(copy_to_device, device=device))

    def map(self, function: Callable[..., Tensor], *others: Source) -> Source:
        """Each tensor is the function of this source's tensor, and of the same tensor of the others."""
        sources = (self, *others)
        return Source(
            function(*(each.tokens for each in sources)), function(*(each.padding for each in sources))
        )


@dataclass(frozen=True)
class Canvas:
    """What diffusion fills: one row per candidate. A `Layout` makes it.

    Fields:
        tokens: (B, L).
        given: (B, L), the mask of tokens that are known: never noised, never changed.
        padding: (B, L), the mask of positions that the networks do not see.
        scored: (B, L), the mask of positions that the losses count.
        source: the `Source` of each sentence.

    >>> from noise2text import Canvas
    >>> from noise2text.data.layouts.split import SplitLayout
    >>> from noise2text.data.ragged import RaggedRows
    >>> rows = RaggedRows.from_lists([[5, 6, 7], [8]])
    >>> canvas = SplitLayout(pad=0).make_canvas(rows, rows)
    >>> isinstance(canvas, Canvas), canvas.tokens.tolist(), canvas.padding.sum().item()
    (True, [[5, 6, 7], [8, 0, 0]], 2)
    """

    tokens: Tensor  # (B, L)
    given: Tensor  # (B, L), of tokens that are known: never noised, never changed
    padding: Tensor  # (B, L), invisible to the networks
    scored: Tensor  # (B, L), counted by the losses
    source: Source

    @property
    def open_positions(self) -> Tensor:
        """The positions (B, L) that generation fills: neither given nor padding."""
        return ~(self.padding | self.given)

    def to(self, device: torch.device | str) -> Canvas:
        """The same canvas on a device."""
        return self.map(partial(copy_to_device, device=device))

    def map(self, function: Callable[..., Tensor], *others: Canvas) -> Canvas:
        """Each tensor is the function of this canvas's tensor, and of the same tensor of the others."""
        names, canvases = ("tokens", "given", "padding", "scored"), (self, *others)
        tensors = {name: function(*(getattr(each, name) for each in canvases)) for name in names}
        source = self.source.map(function, *(each.source for each in others))
        return Canvas(**tensors, source=source)


@dataclass(frozen=True)
class Layout(ABC):
    """How pairs are arranged on a canvas, and how texts are read off it.

    A layout makes the canvas of training pairs (`make_canvas`) and an empty canvas for generation
    (`make_empty_canvas`), and returns the target tokens of a filled canvas (`extract_targets`). A new one
    often extends another.

    Fields:
        pad: the token that fills rows up to one width.

    >>> from noise2text import Layout
    >>> from noise2text.data.layouts.split import SplitLayout
    >>> from noise2text.data.ragged import RaggedRows
    >>> class RightToLeft(SplitLayout):
    ...     def make_canvas(self, sources, targets, *, shape=(0, 0)):
    ...         reversed_targets = RaggedRows.from_lists([row[::-1] for row in targets])
    ...         return super().make_canvas(sources, reversed_targets, shape=shape)
    ...     def extract_targets(self, canvas, tokens):
    ...         return [row[::-1] for row in super().extract_targets(canvas, tokens)]
    >>> layout, pairs = RightToLeft(pad=0), RaggedRows.from_lists([[5, 6, 7]])
    >>> canvas = layout.make_canvas(pairs, pairs)
    >>> canvas.tokens, layout.extract_targets(canvas, canvas.tokens)
    (tensor([[7, 6, 5]]), [[5, 6, 7]])
    """

    pad: int

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end a text, if the model decides where it ends."""
        return ()

    @property
    def has_no_padding(self) -> bool:
        """Whether the networks see every position: nothing is ever marked as padding."""
        return False

    def make_source(self, rows: RaggedRows, *, width: int = 0) -> Source:
        """The sources of a batch, padded to at least `width`."""
        return Source(*rows.pad_to(width, pad=self.pad))

    def batch_shapes(self, lengths: np.ndarray, *, max_buckets: int = FEW_BUCKETS) -> list[tuple[int, int]]:
        """At most `max_buckets` shapes that batches of pairs of these lengths (N, 2) are padded to."""
        return bucket_shapes(lengths, max_buckets=max_buckets)

    @abstractmethod
    def make_canvas(
        self, sources: RaggedRows, targets: RaggedRows, *, shape: tuple[int, int] = (0, 0)
    ) -> Canvas:
        """The canvas of training pairs; `shape` is the minimum width of source and target."""

    @abstractmethod
    def make_empty_canvas(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """An empty canvas for generation: one row per requested length (B, C), sentence by sentence."""

    def randomize(self, canvas: Canvas, u: Tensor) -> Canvas:
        """The training canvas after its random choices, decided by one number u ∈ [0, 1) per row."""
        return canvas

    def generation_rounds(self, canvas: Canvas) -> Iterator[Canvas]:
        """The canvas of pairs as generation fills it: one canvas per round, all at once by default.

        What a round generates is neither given nor padding; what was generated before is given.
        """
        yield canvas

    def apply_template(self, canvas: Canvas, template: Template) -> Canvas:
        """The canvas with the pieces of a template given, for layouts whose text decides its own end."""
        if not template.has_fixed_positions:
            raise Problem(
                "This model finds the end of a text itself: it takes no suffix, and only the last gap of a "
                "template may be open; give the others their number of tokens, such as ___{3}."
            )
        first = canvas.scored.int().argmax(1)
        for piece, start in template.locate_pieces(torch.full_like(first, template.min_length)):
            canvas = give_tokens(canvas, piece, first + start)
        return self.end_text_at(canvas, first + template.min_length) if template.is_exact else canvas

    def end_text_at(self, canvas: Canvas, ends: Tensor) -> Canvas:
        """The canvas whose texts end before these positions (B,), with nothing to generate after them."""
        return canvas

    def empty_source(self, source: Source) -> Source:
        """A source of the same shape without content: a single visible padding token."""
        first = torch.zeros_like(source.padding)
        first[:, 0] = True
        return Source(torch.full_like(source.tokens, self.pad), ~first)

    def without_source(self, canvas: Canvas) -> Canvas:
        """The canvas without its source, for classifier-free guidance."""
        return replace(canvas, source=self.empty_source(canvas.source))

    def target_mask(self, canvas: Canvas) -> Tensor:
        """Where the target is, including its given parts, (B, L)."""
        return ~canvas.padding

    @abstractmethod
    def extract_targets(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        """The target tokens of each row."""

    def locate_targets(self, canvas: Canvas, tokens: Tensor) -> list[slice]:
        """The positions of each row's target; by default it begins at the first one."""
        return [slice(len(row)) for row in self.extract_targets(canvas, tokens)]


def count_before(ended: Tensor) -> list[int]:
    """How many positions of each row (B, L) come before the first where it has ended."""
    counts: list[int] = (ended.cumsum(1) == 0).sum(1).tolist()
    return counts


def give_tokens(canvas: Canvas, tokens: Sequence[int], starts: Tensor) -> Canvas:
    """The canvas with these tokens given from each row's start (B,) on."""
    if not tokens:
        return canvas
    position = torch.arange(canvas.tokens.shape[1], device=starts.device) - starts[:, None]  # (B, L)
    inside = (position >= 0) & (position < len(tokens))
    wanted = torch.tensor(tokens, device=starts.device)[position.clamp(0, len(tokens) - 1)]
    return replace(
        canvas,
        tokens=torch.where(inside, wanted, canvas.tokens),
        given=canvas.given | inside,
        scored=canvas.scored & ~inside,
    )
