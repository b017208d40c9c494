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

from noise2text.data.layouts.base import Canvas
from noise2text.nn.denoiser import Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import LazyLogits
from noise2text.nn.length_predictor import LengthPredictor

__all__ = [
    "AnchorLoss",
    "HasTokenNll",
    "LengthLoss",
    "LossInputs",
    "LossTerm",
    "MseLoss",
    "NllLoss",
    "PriorLoss",
    "RoundingLoss",
    "TokenLoss",
    "TokenNllFunction",
    "compute_token_nll",
    "label_smoothed_nll",
    "scored_positions",
    "token_nll",
    "uniform_weight",
    "visible_positions",
]


TokenNllFunction = Callable[[LazyLogits, Tensor], tuple[Tensor, Tensor]]
"""How surprises at tokens come from scores: see `compute_token_nll`."""


def token_nll(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """−log p at the tokens, and the mean of −log p over the whole vocabulary, given p's logits (…, V)."""
    log_probs = logits.float().log_softmax(-1)
    return -_gather_tokens(log_probs, tokens), -log_probs.mean(-1)


def compute_token_nll(scores: LazyLogits, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The surprise at the tokens, and its mean over the whole vocabulary, of the tokens' shape."""
    return token_nll(scores.logits(), tokens)


@dataclass(frozen=True)
class LossInputs:
    """Everything that one pass of the denoiser over a training canvas left behind."""

    canvas: Canvas
    z0: Tensor  # (B, L, D)
    target: Tensor  # (B, L, D), what the estimate is to be
    estimate: Estimate
    encoded: EncoderOutput
    denoiser: Denoiser
    level: NoiseLevel
    compute_token_nll: TokenNllFunction = compute_token_nll

    @cached_property
    def token_nll(self) -> tuple[Tensor, Tensor]:
        """The surprise after rounding ẑ₀ at the right tokens, and its mean over the vocabulary, (B, L)."""
        return self.compute_token_nll(self.denoiser.lazy_logits(self.estimate), self.canvas.tokens)


@dataclass(frozen=True)
class TokenLoss:
    """Values and which of them count."""

    values: Tensor  # (B, L) or (B, 1)
    mask: Tensor  # the same shape

    def total(self) -> Tensor:
        """The sum of what counts."""
        return torch.where(self.mask, self.values, 0).sum()


class HasTokenNll(Protocol):
    """Anything that is surprised, more or less, at each token of a canvas."""

    @property
    def token_nll(self) -> tuple[Tensor, Tensor]: ...


class LossTerm(Protocol):
    """One part of the objective."""

    def mask(self, canvas: Canvas) -> Tensor:
        """What the term counts."""

    def value(self, inputs: LossInputs) -> Tensor:
        """The loss at each place, of the mask's shape."""


def scored_positions(canvas: Canvas) -> Tensor:
    """What the layout scores."""
    return canvas.scored


def visible_positions(canvas: Canvas) -> Tensor:
    """All positions that the networks see, given ones too."""
    return ~canvas.padding


@dataclass(frozen=True)
class _PositionLoss:
    positions: Callable[[Canvas], Tensor] = scored_positions

    def mask(self, canvas: Canvas) -> Tensor:
        return self.positions(canvas)


def label_smoothed_nll(log_probs: Tensor, tokens: Tensor, smoothing: float) -> Tensor:
    """The surprise at the right tokens, a share of it spread over the whole vocabulary."""
    spread = -log_probs.mean(-1)
    return smoothing * spread - (1 - smoothing) * _gather_tokens(log_probs, tokens)


def _gather_tokens(log_probs: Tensor, tokens: Tensor) -> Tensor:
    return log_probs.gather(-1, tokens[..., None])[..., 0]


def uniform_weight(level: NoiseLevel) -> Tensor:
    """1 at every level."""
    return torch.ones_like(level.alpha)


@dataclass(frozen=True)
class MseLoss(_PositionLoss):
    """The squared error of the clean estimate; its target moves with the embeddings.

    `weighting` gives a factor for each level: the signal-to-noise ratio makes it the squared error of ε.
    """

    weighting: Callable[[NoiseLevel], Tensor] = uniform_weight

    def value(self, inputs: LossInputs) -> Tensor:
        error = (inputs.estimate.z0 - inputs.target).square().mean(-1)
        return self.weighting(inputs.level)[..., 0].to(error.dtype) * error


@dataclass(frozen=True)
class NllLoss(_PositionLoss):
    """The surprise at the right token after rounding ẑ₀."""

    def value(self, inputs: HasTokenNll) -> Tensor:
        return inputs.token_nll[0]


@dataclass(frozen=True)
class AnchorLoss(NllLoss):
    """The same with label smoothing: a share is spread over the whole vocabulary."""

    smoothing: float = 0.1

    def value(self, inputs: HasTokenNll) -> Tensor:
        at, mean = inputs.token_nll
        return self.smoothing * mean + (1 - self.smoothing) * at


@dataclass(frozen=True)
class RoundingLoss(_PositionLoss):
    """The surprise at the right token after rounding z₀ itself."""

    def value(self, inputs: LossInputs) -> Tensor:
        return inputs.compute_token_nll(
            inputs.denoiser.embedding.lazy_logits(inputs.z0), inputs.canvas.tokens
        )[0]


@dataclass(frozen=True)
class PriorLoss(_PositionLoss):
    """The mean square of what is left of z₀ at the last time; `final_alpha` is α there."""

    final_alpha: float = 0.0

    def value(self, inputs: LossInputs) -> Tensor:
        return (self.final_alpha * inputs.z0).square().mean(-1)


class LengthLoss:
    """The surprise at the right length, one value a sentence."""

    def __init__(self, lengths: LengthPredictor) -> None:
        self.lengths = lengths

    def mask(self, canvas: Canvas) -> Tensor:
        return torch.ones_like(canvas.padding[:, :1])

    def value(self, inputs: LossInputs) -> Tensor:
        return self.lengths.nll(inputs.encoded, inputs.canvas.padding)
