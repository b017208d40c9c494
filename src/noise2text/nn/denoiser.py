"""A denoiser always answers with the clean estimate: ẑ₀ = f(z_t, level, source).

Whatever a network predicts, and whatever is wrapped around it, looks like this to the walk and to the
objective. What the source needs is read once a sentence (`Memory`); what is given on the canvas is held
(`Held`) in the input; the walk and the objective hold the estimates, of which one is the next guess.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.data.layouts.canvas import Canvas, Source
from noise2text.nn.embeddings import Scores, Space

__all__ = ["Clamped", "Denoiser", "Estimate", "Held", "Level", "Memory", "Wrapped", "rows_at_once"]

LOGITS = 1 << 28  # scores of tokens that are held at once


@dataclass(frozen=True)
class Level:
    """The noise at some time: the signal's factor, the noise's, and the time that the network is told."""

    alpha: Tensor  # (B, 1 or L, 1)
    sigma: Tensor  # (B, 1 or L, 1)
    clock: Tensor  # (B, 1 or L)
    ticks: Tensor | None = None  # (B, 1 or L, W), what the network makes of the clock, if it has been asked

    @property
    def snr(self) -> Tensor:
        """The signal-to-noise ratio α²/σ²."""
        return (self.alpha / self.sigma) ** 2


@dataclass(frozen=True)
class Memory:
    """What is kept of the sources, a row a sentence; its candidates share it."""

    states: Tensor  # (B, S, W)
    padding: Tensor  # (B, S)
    keys: Tensor  # (layers, B, heads, S, W / heads); in training several sources may share a row
    values: Tensor

    @property
    def together(self) -> int:
        """How many sources share a row of keys and values."""
        return len(self.padding) // self.keys.shape[1]


@dataclass(frozen=True)
class Held:
    """What is given on the canvas, a row a candidate."""

    given: Tensor  # (B, L, D), float32
    frozen: Tensor  # (B, L)
    padding: Tensor  # (B, L)

    def hold(self, x: Tensor) -> Tensor:
        """x with its frozen positions put back to what is given."""
        return torch.where(self.frozen[..., None], self.given.to(x.dtype), x)


@dataclass(frozen=True)
class Estimate:
    """The clean estimate, and the network's last states that it was made from."""

    mean: Tensor  # (B, L, D), float32
    hidden: Tensor  # (B, L, W)


def rows_at_once(estimate: Estimate, vocabulary: int) -> int:
    """The rows of an estimate whose scores there is room for at the same time."""
    return max(1, LOGITS // (estimate.mean.shape[1] * vocabulary))


class Denoiser(nn.Module, ABC):
    """Estimates z₀; the source is read once, the canvas at each step."""

    space: Space

    @abstractmethod
    def read(self, source: Source) -> Memory:
        """What the steps need of the sources."""

    def hold(self, canvas: Canvas) -> Held:
        """The canvas's given embeddings and masks."""
        return Held(self.space.embed(canvas.tokens).float(), canvas.frozen, canvas.padding)

    def timer(self) -> nn.Module | None:
        """The part that sees nothing but the clock, if there is one."""
        return None

    def ticks(self, clock: Tensor) -> Tensor | None:
        """What the network makes of clocks (B, 1 or L), if it can say so beforehand."""
        timer = self.timer()
        return None if timer is None else timer(clock)

    @abstractmethod
    def forward(self, z: Tensor, level: Level, memory: Memory, held: Held, guess: Tensor | None) -> Estimate:
        """ẑ₀ for noisy z (B, L, D); `guess` is the previous estimate (self-conditioning); none is zero."""

    def scores(self, estimate: Estimate) -> Scores:
        """What every token scores at every position: the rounding of ẑ₀."""
        return self.space.scores(estimate.mean)

    def logits(self, estimate: Estimate) -> Tensor:
        """The scores as a tensor, (B, L, V)."""
        return self.scores(estimate).logits()


class Wrapped(Denoiser):
    """A denoiser around another, which reads, holds and rounds for it."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser, self.space = denoiser, denoiser.space

    def read(self, source: Source) -> Memory:
        return self.denoiser.read(source)

    def hold(self, canvas: Canvas) -> Held:
        return self.denoiser.hold(canvas)

    def timer(self) -> nn.Module | None:
        return self.denoiser.timer()

    def scores(self, estimate: Estimate) -> Scores:
        return self.denoiser.scores(estimate)

    def logits(self, estimate: Estimate) -> Tensor:
        return self.denoiser.logits(estimate)


class Clamped(Wrapped):
    """A denoiser whose estimate is moved to the nearest embedding (Diffusion-LM's clamping trick)."""

    def forward(self, z: Tensor, level: Level, memory: Memory, held: Held, guess: Tensor | None) -> Estimate:
        estimate: Estimate = self.denoiser(z, level, memory, held, guess)
        nearest = self.space.embed(self.space.nearest(estimate.mean)).to(estimate.mean.dtype)
        return Estimate(nearest, estimate.hidden)
