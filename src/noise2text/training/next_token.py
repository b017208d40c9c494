"""Autoregressive training: −log p(yᵢ | y₁ … yᵢ₋₁, x), label-smoothed, at all positions in one pass.

Every position sees the true tokens before it (teacher forcing), so dropout is the only random choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import (
    LossTerm,
    NllLoss,
    SmoothedNllLoss,
    TokenLoss,
    TokenNllFunction,
    token_nll,
)
from noise2text.nn.autoregressive import AutoregressiveNetwork, shift_right
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.embeddings import LazyLogits
from noise2text.training.objective import Objective

__all__ = ["NextTokenObjective"]


@dataclass(frozen=True)
class _NextTokens:
    """What the terms over the vocabulary read."""

    canvas: Canvas
    logits: LazyLogits  # (B, L, V)
    token_nll: TokenNllFunction


class NextTokenObjective(Objective):
    """The label-smoothed −log p of each next token; the plain one is logged."""

    def __init__(
        self,
        network: AutoregressiveNetwork,
        *,
        bos: int,
        label_smoothing: float,
        more_terms: Iterable[LossTerm] = (),
    ) -> None:
        """`more_terms` are terms that a subclass computes itself."""
        token_terms = (
            SmoothedNllLoss(smoothing=label_smoothing),
            NllLoss(weight=None, always_computed=True),
        )
        super().__init__([*token_terms, *more_terms])
        self.token_terms = token_terms
        self.network, self.bos = network, bos
        self.graph_capturable = network.graph_capturable

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> None:
        """Nothing."""

    def forward(self, canvas: Canvas, draws: None) -> dict[str, TokenLoss]:
        return self.compute_losses(canvas, self.network.encode(canvas.source))

    def compute_losses(self, canvas: Canvas, encoded: EncoderOutput) -> dict[str, TokenLoss]:
        """The terms of the targets, given the encoded sources."""
        logits = self.network.lazy_logits(shift_right(canvas.tokens, self.bos), encoded)
        # Both terms share one pass over the vocabulary.
        shared_nll: Any = cache(self.training_token_nll if self.training else token_nll)
        inputs = _NextTokens(canvas, logits, shared_nll)
        return {term.name: TokenLoss(term.value(inputs), term.make_mask(canvas)) for term in self.token_terms}
