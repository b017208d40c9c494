"""Training at times that are drawn by their losses (DiffuSeq, eq. 3), for any diffusion objective.

Every term is multiplied by the weight of its row's time, 1 / (T·p_t), so the expected loss and its gradient
are those of uniform times. The distribution p itself is in `diffusion/loss_aware_times.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from noise2text.diffusion.losses import TokenLoss
from noise2text.training.objective import DiffusionObjective, Draws

__all__ = ["ImportanceSampledObjective", "row_means"]


class ImportanceSampledObjective(DiffusionObjective):
    """A diffusion objective whose time sampler observes the mean of one term in each row."""

    def __init__(self, *parts: Any, observed_term: str = "vlb", **more: Any) -> None:
        """`observed_term` is the name of a term that is trained on; the rest is for `DiffusionObjective`."""
        super().__init__(*parts, **more)
        self.observed_term = observed_term

    def collect_observations(self, draws: Draws, token_losses: Mapping[str, TokenLoss]) -> tuple[Tensor, ...]:
        if not self.time_sampler.observes_losses:
            return ()
        observed = token_losses[self.observed_term]
        # The sampler observes losses without the weight.
        return draws.t, row_means(observed.values.detach(), observed.mask) / draws.weight

    def observe(self, *observed: Tensor) -> None:
        self.time_sampler.observe(*observed)


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of each row (B, L) over the positions of the mask, (B,)."""
    return torch.where(mask, values, 0).sum(1) / mask.sum(1)
