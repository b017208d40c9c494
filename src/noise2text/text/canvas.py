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

from noise2text.hardware import send
from noise2text.problem import Problem
from noise2text.text.plan import ladder
from noise2text.text.rows import Rows

__all__ = ["Canvas", "Layout", "Source", "Split"]


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

    def source(self, rows: Rows, *, width: int = 0) -> Source:
        """The sources of a batch, at least `width` wide."""
        return Source(*rows.padded(width, pad=self.pad))

    def shapes(self, lengths: np.ndarray) -> list[tuple[int, int]]:
        """The few shapes that batches of pairs of these lengths (N, 2) are padded to."""
        return ladder(lengths)

    @abstractmethod
    def canvas(self, sources: Rows, targets: Rows, *, shape: tuple[int, int] = (0, 0)) -> Canvas:
        """The canvas of training pairs; `shape` is the least width of source and target."""

    @abstractmethod
    def prompt(self, source: Source, lengths: Tensor, *, width: int) -> Canvas:
        """An empty canvas for each of the (B, C) wished lengths, candidates of a sentence side by side."""

    def give(self, canvas: Canvas, prefix: Sequence[int], suffix: Sequence[int]) -> Canvas:
        """The canvas with the beginning of each target given, and its end where the layout knows that."""
        if suffix:
            raise Problem("This system finds the end of a text itself: give it a prefix, but no suffix.")
        return _given(canvas, prefix, canvas.scored.int().argmax(1))

    def silent(self, source: Source) -> Source:
        """A source of the same shape that says nothing: a single padding token, visible."""
        first = torch.zeros_like(source.padding)
        first[:, 0] = True
        return Source(torch.full_like(source.tokens, self.pad), ~first)

    def blank(self, canvas: Canvas) -> Canvas:
        """The canvas without its source: its unconditional twin, for guidance."""
        return replace(canvas, source=self.silent(canvas.source))

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

    def give(self, canvas: Canvas, prefix: Sequence[int], suffix: Sequence[int]) -> Canvas:
        ends = (~canvas.padding).sum(1)
        return _given(super().give(canvas, prefix, ()), suffix, ends - len(suffix))

    def read(self, canvas: Canvas, tokens: Tensor) -> list[list[int]]:
        rows, lengths = tokens.tolist(), (~canvas.padding).sum(1).tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]


def _given(canvas: Canvas, tokens: Sequence[int], starts: Tensor) -> Canvas:
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
