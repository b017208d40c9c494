"""Layouts: how a pair of token rows becomes a canvas, and how a canvas is read back.

A canvas is what diffusion fills. Four masks say who may look at what: the networks read only `padding`,
the losses only `scored`, and the walk holds what is `frozen` at its given tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from noise2text.core.devices import send
from noise2text.core.errors import Problem
from noise2text.data.batching import FEW, ladder
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import Rows

__all__ = ["Canvas", "Layout", "Source", "Split", "hold_at"]


@dataclass(frozen=True)
class Source:
    """What is conditioned on: a row a sentence."""

    tokens: Tensor  # (B, S)
    padding: Tensor  # (B, S), true where there is no token

    def to(self, device: torch.device | str) -> Source:
        """The same source on a device."""
        return Source(send(self.tokens, device), send(self.padding, device))


@dataclass(frozen=True)
class Canvas:
    """What is written on: a row a candidate."""

    tokens: Tensor  # (B, L)
    frozen: Tensor  # (B, L), given and never changed
    padding: Tensor  # (B, L), invisible to the networks
    scored: Tensor  # (B, L), counted by the losses
    source: Source

    def to(self, device: torch.device | str) -> Canvas:
        """The same canvas on a device."""
        moved = {name: send(getattr(self, name), device) for name in _ON_CANVAS}
        return replace(self, source=self.source.to(device), **moved)


_ON_CANVAS = ("tokens", "frozen", "padding", "scored")


@dataclass(frozen=True)
class Layout(ABC):
    """How pairs are put on a canvas and texts are read off it."""

    pad: int

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a text, where one is written to its end."""
        return ()

    @property
    def full(self) -> bool:
        """Whether nothing on a canvas is ever marked as padding: the networks see every position."""
        return False

    def source(self, rows: Rows, *, width: int = 0) -> Source:
        """The sources of a batch, at least `width` wide."""
        return Source(*rows.padded(width, pad=self.pad))

    def shapes(self, lengths: np.ndarray, *, rungs: int = FEW) -> list[tuple[int, int]]:
        """The shapes that batches of pairs of these lengths (N, 2) are padded to, at most so many."""
        return ladder(lengths, rungs=rungs)

    @abstractmethod
    def canvas(self, sources: Rows, targets: Rows, *, shape: tuple[int, int] = (0, 0)) -> Canvas:
        """The canvas of training pairs; `shape` is the least width of source and target."""

    @abstractmethod
    def prompt(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """An empty canvas for each of the (B, C) wished lengths, candidates of a sentence side by side."""

    def vary(self, canvas: Canvas, u: Tensor) -> Canvas:
        """The canvas of training pairs after what chance decides of it, by a number u ∈ [0, 1) a row."""
        return canvas

    def give(self, canvas: Canvas, template: Template) -> Canvas:
        """The canvas with the pieces of a template held, where the text decides its own end."""
        if not template.is_open:
            raise Problem(
                "This system finds the end of a text itself: it takes no suffix, and only the last gap of a "
                "template may be open; give the others their number of tokens, such as ___{3}."
            )
        first = canvas.scored.int().argmax(1)
        for piece, start in template.placed(torch.full_like(first, template.least)):
            canvas = hold_at(canvas, piece, first + start)
        return self.close(canvas, first + template.least) if template.is_exact else canvas

    def close(self, canvas: Canvas, ends: Tensor) -> Canvas:
        """The canvas whose texts end before these places (B,), and with nothing to write after."""
        return canvas

    def silent(self, source: Source) -> Source:
        """A source of the same shape that says nothing: a single padding token, visible."""
        first = torch.zeros_like(source.padding)
        first[:, 0] = True
        return Source(torch.full_like(source.tokens, self.pad), ~first)

    def blank(self, canvas: Canvas) -> Canvas:
        """The canvas without its source: its unconditional twin, for guidance."""
        return replace(canvas, source=self.silent(canvas.source))

    def text(self, canvas: Canvas) -> Tensor:
        """Where the target stands, given parts of it too, (B, L)."""
        return ~canvas.padding

    @abstractmethod
    def read(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        """The target tokens of each row."""


class Split(Layout):
    """Source and target apart, as encoder-decoders want them; the length is given (Difformer)."""

    def canvas(self, sources: Rows, targets: Rows, *, shape: tuple[int, int] = (0, 0)) -> Canvas:
        tokens, padding = targets.padded(shape[1], pad=self.pad)
        return Canvas(
            tokens=tokens,
            frozen=torch.zeros_like(padding),
            padding=padding,
            scored=~padding,
            source=self.source(sources, width=shape[0]),
        )

    def prompt(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        places = torch.arange(width, device=lengths.device)
        padding = places >= lengths.reshape(-1, 1)  # (B·C, L)
        return Canvas(
            tokens=torch.full_like(padding, self.pad, dtype=torch.long),
            frozen=torch.zeros_like(padding),
            padding=padding,
            scored=~padding,
            source=source,
        )

    def give(self, canvas: Canvas, template: Template) -> Canvas:
        if not template.held:
            return canvas
        for piece, start in template.placed((~canvas.padding).sum(1)):
            canvas = hold_at(canvas, piece, start)
        return canvas

    def read(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        rows, lengths = tokens.tolist(), (~canvas.padding).sum(1).tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]


def hold_at(canvas: Canvas, tokens: Sequence[int], starts: Tensor) -> Canvas:
    """The canvas with these tokens held from each row's start (B,) on."""
    if not tokens:
        return canvas
    place = torch.arange(canvas.tokens.shape[1], device=starts.device) - starts[:, None]  # (B, L)
    inside = (place >= 0) & (place < len(tokens))
    wanted = torch.tensor(tokens, device=starts.device)[place.clamp(0, len(tokens) - 1)]
    return replace(
        canvas,
        tokens=torch.where(inside, wanted, canvas.tokens),
        frozen=canvas.frozen | inside,
        scored=canvas.scored & ~inside,
    )
