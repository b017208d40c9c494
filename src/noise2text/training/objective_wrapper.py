"""An objective around another one: a part that any recipe can put around its own objective.

Everything that a wrapper does not define is the inner objective's. `SourceDropout` changes what it sees;
`NoiseFactorSearch` changes its noise between the steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from torch import Tensor

from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import TokenLoss
from noise2text.training.objective import Objective

__all__ = ["ObjectiveWrapper"]


class ObjectiveWrapper(Objective):
    """Another objective, changed; by default nothing is."""

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective.terms.values())
        self.objective = objective
        self.graph_capturable = objective.graph_capturable

    @property
    def terms_logged(self) -> bool:
        """Whether the next steps of the inner objective are logged."""
        return self.objective.terms_logged

    @terms_logged.setter
    def terms_logged(self, value: bool) -> None:
        self.objective.terms_logged = value

    @property
    def skipped_terms(self) -> frozenset[str]:
        return self.objective.skipped_terms

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        return self.objective.counts(canvas)

    def step_flags(self, step_key: Tensor) -> Hashable:
        return self.objective.step_flags(step_key)

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Any:
        return self.objective.draw(canvas, keys, step_key)

    def forward(self, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        token_losses: dict[str, TokenLoss] = self.objective(canvas, draws)
        return token_losses

    def means(self, losses: Mapping[str, TokenLoss], counts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.objective.means(losses, counts)

    def loss(self, means: Mapping[str, Tensor]) -> Tensor:
        return self.objective.loss(means)

    def collect_observations(self, draws: Any, token_losses: Mapping[str, TokenLoss]) -> tuple[Tensor, ...]:
        return self.objective.collect_observations(draws, token_losses)

    def observe(self, *observed: Tensor) -> None:
        self.objective.observe(*observed)

    def adapt(self, step: int) -> None:
        self.objective.adapt(step)
