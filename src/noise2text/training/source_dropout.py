"""Training with and without the source (thesis, algorithm 3): for guidance, one network learns both.

Each row loses its source with probability p, decided by the row's key alone. Validation keeps all sources,
so that its losses compare with those of any other model.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noise2text.core.random import key, uniform
from noise2text.data.layouts.canvas import Canvas, Layout, Source
from noise2text.diffusion.losses import Tally
from noise2text.training.objective import Objective

__all__ = ["Dropped", "Dropping"]

_DROP = 3  # what a row's key is for; the objective within has 0, 1 and 2


@dataclass(frozen=True)
class Dropped:
    """Which rows lose their source, and what else chance decides."""

    rows: Tensor  # (B,)
    inner: Any


class Dropping(Objective):
    """Another objective that sees some rows without their source."""

    def __init__(self, objective: Objective, layout: Layout, rate: float) -> None:
        super().__init__(objective.terms, objective.weights, always=objective.always)
        self.objective, self.layout, self.rate = objective, layout, rate

    def watch(self, watched: bool) -> None:
        super().watch(watched)
        self.objective.watch(watched)

    def coin(self, step_key: Tensor) -> Hashable:
        return self.objective.coin(step_key)

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Dropped:
        rows = uniform(key(keys, _DROP)) < (self.rate if self.training else 0.0)
        return Dropped(rows, self.objective.draw(canvas, keys, step_key))

    def forward(self, canvas: Canvas, draws: Dropped) -> dict[str, Tally]:
        tallies: dict[str, Tally] = self.objective(self._without(canvas, draws.rows), draws.inner)
        return tallies

    def seen(self, draws: Dropped, tallies: Mapping[str, Tally]) -> tuple[Tensor, ...]:
        return self.objective.seen(draws.inner, tallies)

    def observe(self, *seen: Tensor) -> None:
        self.objective.observe(*seen)

    def settle(self, step: int) -> None:
        self.objective.settle(step)

    def _without(self, canvas: Canvas, rows: Tensor) -> Canvas:
        """The canvas, blank in these rows."""
        blank, chosen = self.layout.blank(canvas), rows[:, None]
        source = Source(
            torch.where(chosen, blank.source.tokens, canvas.source.tokens),
            torch.where(chosen, blank.source.padding, canvas.source.padding),
        )
        names = ("tokens", "frozen", "padding", "scored")
        masks = {name: torch.where(chosen, getattr(blank, name), getattr(canvas, name)) for name in names}
        return Canvas(source=source, **masks)
