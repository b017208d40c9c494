"""Time samplers: the time of each training pair, and the weight that keeps the loss unbiased."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

__all__ = ["TimeSampler", "UniformTimes"]


class TimeSampler(nn.Module, ABC):
    """The distribution over the times 1/T, 2/T, …, 1 that training draws from; what it learns is in buffers.

    Args:
        num_timesteps: T, the resolution of time in training.

    >>> import torch
    >>> from noise2text import TimeSampler
    >>> class EarlyTimes(TimeSampler):  # t = u², so that small times are more frequent
    ...     def forward(self, u):
    ...         t = (torch.floor(u**2 * self.num_timesteps) + 1) / self.num_timesteps
    ...         p = t.sqrt() - (t - 1 / self.num_timesteps).sqrt()
    ...         return t, 1 / (self.num_timesteps * p)
    >>> EarlyTimes(4)(torch.tensor([0.1, 0.6]))
    (tensor([0.2500, 0.5000]), tensor([0.5000, 1.2071]))
    """

    observes_losses = True  # whether training passes the losses to `observe`

    def __init__(self, num_timesteps: int) -> None:
        super().__init__()
        self.num_timesteps = num_timesteps

    @abstractmethod
    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The time at the quantile u ∈ [0, 1), and its weight 1 / (T · p(t)): the mean stays unbiased."""

    def observe(self, t: Tensor, losses: Tensor) -> None:
        """Adapt to the losses (B,) of rows at the times t; by default do nothing."""


class UniformTimes(TimeSampler):
    """Each time with the same probability."""

    observes_losses = False

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        times = (torch.floor(u * self.num_timesteps) + 1) / self.num_timesteps
        return times, torch.ones_like(u, dtype=torch.float)
