"""The terms of the objective, each a value a position or a sentence, never reduced here.

    vlb       ‖ẑ₀ − z₀‖² / d                 (Difformer, eq. 1; the mean over channels; weighed if wished)
    anchor    −log p(y | ẑ₀), label-smoothed  (Difformer, eq. 2)
    rounding  −log p(y | z₀)                  (Diffusion-LM)
    prior     ‖α(1)·z₀‖² / d                  (Diffusion-LM)
    nll       −log p(y | ẑ₀)                  (watched, not trained on)
    length    −log p(n | x)                   (Difformer, section 3.3)

Any combination is an objective. A term says first what it counts (`mask`), so that the loop can divide by
the counts of a whole step, over all micro-batches and processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from noise2text.data.layouts.canvas import Canvas
from noise2text.nn.denoiser import Denoiser, Estimate, Level, Memory
from noise2text.nn.embeddings import Scores
from noise2text.nn.length_predictor import Lengths

__all__ = [
    "Anchor",
    "LengthNll",
    "Mse",
    "Nll",
    "Prior",
    "Rounding",
    "Spell",
    "Spelled",
    "Tally",
    "Term",
    "Trace",
    "everything",
    "scored",
    "smoothed",
    "spell",
    "surprises",
    "unweighed",
]


Spell = Callable[[Scores, Tensor], tuple[Tensor, Tensor]]
"""How surprises at tokens come from scores: see `spell`."""


def surprises(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """−log p at the tokens, and the mean of −log p over the whole vocabulary, given p's logits (…, V)."""
    log_probabilities = logits.float().log_softmax(-1)
    return -_picked(log_probabilities, tokens), -log_probabilities.mean(-1)


def spell(scores: Scores, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The surprise at the tokens, and its mean over the whole vocabulary, of the tokens' shape."""
    return surprises(scores.logits(), tokens)


@dataclass(frozen=True)
class Trace:
    """Everything that one pass of the denoiser over a training canvas left behind."""

    canvas: Canvas
    z0: Tensor  # (B, L, D)
    target: Tensor  # (B, L, D), what the estimate is to be
    estimate: Estimate
    memory: Memory
    denoiser: Denoiser
    level: Level
    spell: Spell = spell

    @cached_property
    def surprises(self) -> tuple[Tensor, Tensor]:
        """The surprise after rounding ẑ₀ at the right tokens, and its mean over the vocabulary, (B, L)."""
        return self.spell(self.denoiser.scores(self.estimate), self.canvas.tokens)


@dataclass(frozen=True)
class Tally:
    """Values and which of them count."""

    value: Tensor  # (B, L) or (B, 1)
    mask: Tensor  # the same shape

    def total(self) -> Tensor:
        """The sum of what counts."""
        return torch.where(self.mask, self.value, 0).sum()


class Spelled(Protocol):
    """Anything that is surprised, more or less, at each token of a canvas."""

    @property
    def surprises(self) -> tuple[Tensor, Tensor]: ...


class Term(Protocol):
    """One part of the objective."""

    def mask(self, canvas: Canvas) -> Tensor:
        """What the term counts."""

    def value(self, trace: Trace) -> Tensor:
        """The loss at each place, of the mask's shape."""


def scored(canvas: Canvas) -> Tensor:
    """What the layout scores."""
    return canvas.scored


def everything(canvas: Canvas) -> Tensor:
    """All positions that the networks see, given ones too."""
    return ~canvas.padding


@dataclass(frozen=True)
class _OverPositions:
    over: Callable[[Canvas], Tensor] = scored

    def mask(self, canvas: Canvas) -> Tensor:
        return self.over(canvas)


def smoothed(log_probabilities: Tensor, tokens: Tensor, smoothing: float) -> Tensor:
    """The surprise at the right tokens, a share of it spread over the whole vocabulary."""
    spread = -log_probabilities.mean(-1)
    return smoothing * spread - (1 - smoothing) * _picked(log_probabilities, tokens)


def _picked(log_probabilities: Tensor, tokens: Tensor) -> Tensor:
    return log_probabilities.gather(-1, tokens[..., None])[..., 0]


def unweighed(level: Level) -> Tensor:
    """1 at every level."""
    return torch.ones_like(level.alpha)


@dataclass(frozen=True)
class Mse(_OverPositions):
    """The squared error of the clean estimate; its target moves with the embeddings.

    `weigh` gives a factor for each level: the signal-to-noise ratio makes it the squared error of ε.
    """

    weigh: Callable[[Level], Tensor] = unweighed

    def value(self, trace: Trace) -> Tensor:
        error = (trace.estimate.mean - trace.target).square().mean(-1)
        return self.weigh(trace.level)[..., 0].to(error.dtype) * error


@dataclass(frozen=True)
class Nll(_OverPositions):
    """The surprise at the right token after rounding ẑ₀."""

    def value(self, trace: Spelled) -> Tensor:
        return trace.surprises[0]


@dataclass(frozen=True)
class Anchor(Nll):
    """The same with label smoothing: a share is spread over the whole vocabulary."""

    smoothing: float = 0.1

    def value(self, trace: Spelled) -> Tensor:
        at, mean = trace.surprises
        return self.smoothing * mean + (1 - self.smoothing) * at


@dataclass(frozen=True)
class Rounding(_OverPositions):
    """The surprise at the right token after rounding z₀ itself."""

    def value(self, trace: Trace) -> Tensor:
        return trace.spell(trace.denoiser.space.scores(trace.z0), trace.canvas.tokens)[0]


@dataclass(frozen=True)
class Prior(_OverPositions):
    """The mean square of what is left of z₀ at the last time; `remains` is α there."""

    remains: float = 0.0

    def value(self, trace: Trace) -> Tensor:
        return (self.remains * trace.z0).square().mean(-1)


class LengthNll:
    """The surprise at the right length, one value a sentence."""

    def __init__(self, lengths: Lengths) -> None:
        self.lengths = lengths

    def mask(self, canvas: Canvas) -> Tensor:
        return torch.ones_like(canvas.padding[:, :1])

    def value(self, trace: Trace) -> Tensor:
        return self.lengths.surprise(trace.memory, trace.canvas.padding)
