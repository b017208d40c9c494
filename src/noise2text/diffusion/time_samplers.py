"""Which time a training pair is noised to, and the weight that makes up for the choice."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

__all__ = ["TimeSampler", "UniformTimes"]


class TimeSampler(nn.Module, ABC):
    """A distribution over the T times 1/T, 2/T, …, 1; what it learns is kept in buffers."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    @abstractmethod
    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The time at the quantile u ∈ [0, 1) and its weight 1 / (T · p(t)): the mean stays unbiased."""

    def observe(self, t: Tensor, losses: Tensor) -> None:
        """Take note of the losses (B,) of rows at the times t."""


class UniformTimes(TimeSampler):
    """Each time with the same probability."""

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return (torch.floor(u * self.steps) + 1) / self.steps, torch.ones_like(u, dtype=torch.float)
