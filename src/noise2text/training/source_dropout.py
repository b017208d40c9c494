"""Training with and without the source, for classifier-free guidance (Demirag, 2023, algorithm 3).

Each row loses its source with probability p, decided by the row's key alone. Validation keeps all sources,
so that its losses compare with those of any other model. Sampling: `diffusion/classifier_free_guidance.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.core.random import RowKeyPurpose, make_key, uniform
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.diffusion.losses import TokenLoss
from noise2text.training.objective import Objective
from noise2text.training.objective_wrapper import ObjectiveWrapper

__all__ = ["SourceDropout", "SourceDropoutDraws", "require_dropout_for_guidance", "with_source_dropout"]


@dataclass(frozen=True)
class SourceDropoutDraws:
    """Which rows lose their source, and the draws of the inner objective."""

    dropped: Tensor  # (B,)
    inner: Any


class SourceDropout(ObjectiveWrapper):
    """Another objective that sees some of its rows without their source; the rest is the other's."""

    def __init__(self, objective: Objective, layout: Layout, rate: float) -> None:
        super().__init__(objective)
        self.layout, self.rate = layout, rate

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> SourceDropoutDraws:
        rate = self.rate if self.training else 0.0
        dropped = uniform(make_key(keys, RowKeyPurpose.SOURCE_DROPOUT)) < rate
        return SourceDropoutDraws(dropped, self.objective.draw(canvas, keys, step_key))

    def forward(self, canvas: Canvas, draws: SourceDropoutDraws) -> dict[str, TokenLoss]:
        token_losses: dict[str, TokenLoss] = self.objective(
            self._drop_sources(canvas, draws.dropped), draws.inner
        )
        return token_losses

    def collect_observations(
        self, draws: SourceDropoutDraws, token_losses: Mapping[str, TokenLoss]
    ) -> tuple[Tensor, ...]:
        return self.objective.collect_observations(draws.inner, token_losses)

    def _drop_sources(self, canvas: Canvas, dropped: Tensor) -> Canvas:
        """The canvas without the source in these rows."""
        column = dropped[:, None]
        return self.layout.without_source(canvas).map(lambda a, b: torch.where(column, a, b), canvas)


def with_source_dropout(objective: Objective, layout: Layout, rate: float) -> Objective:
    """The objective that drops this share of the sources; at 0, the objective itself."""
    return SourceDropout(objective, layout, rate) if rate else objective


def require_dropout_for_guidance(*, source_dropout: float, guidance_weight: float) -> None:
    """Refuse settings that guide a model which never sees a pair without its source."""
    if guidance_weight and not source_dropout:
        raise Problem(
            "The setting guidance_weight needs a model that is also trained without sources: set "
            "source_dropout above 0."
        )
