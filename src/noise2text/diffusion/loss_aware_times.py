"""Importance sampling of the time (DiffuSeq, eq. 3; Nichol and Dhariwal, 2021):

    L = E_{t ~ p}[L_t / (T·p_t)],    p_t ∝ √E[L_t²]

The expectation is over the last ten losses of each time. Times are uniform until every time has ten losses,
and for a small share of the draws after that. They are always uniform in evaluation, so that validation
losses can be compared.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noise2text.diffusion.time_samplers import TimeSampler, UniformTimes

__all__ = ["TIME_SAMPLERS", "LossAwareTimes"]


class LossAwareTimes(TimeSampler):
    """Each time with a probability proportional to the root mean square of its last losses."""

    def __init__(self, num_timesteps: int, *, history: int = 10, uniform_share: float = 0.001) -> None:
        super().__init__(num_timesteps)
        self.uniform_share = uniform_share
        self.register_buffer("losses", torch.zeros(num_timesteps, history))
        self.register_buffer("counts", torch.zeros(num_timesteps, dtype=torch.long))

    losses: Tensor  # (T, history), the last losses of each time in a ring buffer
    counts: Tensor  # (T,), how many losses each time has had

    def probabilities(self) -> Tensor:
        """p over the T times, in float64."""
        size = self.losses.double().square().mean(1).sqrt()
        even = torch.full_like(size, 1 / self.num_timesteps)
        aware = (1 - self.uniform_share) * size / size.sum() + self.uniform_share * even
        return torch.where((self.counts >= self.losses.shape[1]).all(), aware, even)

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        p = self.probabilities()
        if not self.training:
            p = torch.full_like(p, 1 / self.num_timesteps)
        index = torch.searchsorted(p.cumsum(0), u.double(), right=True).clamp(max=self.num_timesteps - 1)
        return (index + 1).double() / self.num_timesteps, (1 / (self.num_timesteps * p[index])).float()

    @torch.no_grad()
    def observe(self, t: Tensor, losses: Tensor) -> None:
        history = self.losses.shape[1]
        index, order = ((t * self.num_timesteps).round().long() - 1).sort(stable=True)
        here = torch.zeros_like(self.counts).index_add_(0, index, torch.ones_like(index))
        rows = torch.arange(len(index), device=index.device)
        rank = rows - (here.cumsum(0) - here)[index]
        # If a batch has more losses of one time than are kept, all that share a slot write the last of them.
        newest = rows + (here[index] - 1 - rank) // history * history
        slot = (self.counts[index] + rank) % history
        self.losses[index, slot] = losses[order[newest]].to(self.losses.dtype)
        self.counts += here


TIME_SAMPLERS: dict[str, type[TimeSampler]] = {"loss-aware": LossAwareTimes, "uniform": UniformTimes}
"""The time samplers by the names that the setting `time_sampler` takes."""
