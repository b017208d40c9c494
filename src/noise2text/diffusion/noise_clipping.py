"""Noise clipping and exaggerated noise levels (DiNoiSer, Ye et al., 2023).

Training: where the noise is small compared with the distance between embeddings, any network reads the token
off the canvas and learns nothing about the source. So no training time has a noise-to-signal ratio below

    σ²/α² = δ²/d + margin,    δ² the mean over the tokens of the squared distance to their nearest neighbour,

computed again as the embeddings move. Generation: a network trusts the source more than the canvas where the
timestep says that there is much noise. So its timestep stays near 1 at all steps, while the canvas follows
the true noise level.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noise2text.diffusion.schedules import Schedule, ScheduleWrapper
from noise2text.diffusion.time_samplers import TimeSampler
from noise2text.nn.denoiser import NoiseLevel

__all__ = ["ClippedTimes", "ExaggeratedNoise", "neighbor_distance"]

BLOCK = 2**24  # about how many distances are in memory at a time


class ClippedTimes(TimeSampler):
    """Uniform over the times from `first_time_index` on, below which there is too little noise."""

    observes_losses = False

    def __init__(self, schedule: Schedule, *, margin: float = 0.0) -> None:
        super().__init__(schedule.num_timesteps)
        self.margin = margin
        times = torch.arange(1, self.num_timesteps + 1, dtype=torch.float64) / self.num_timesteps
        level: NoiseLevel = schedule(times, 1)
        self.register_buffer("ratios", 1 / level.snr[:, 0, 0], persistent=False)  # (T,), rising
        self.register_buffer("first_time_index", torch.ones((), dtype=torch.long))

    ratios: Tensor
    first_time_index: Tensor  # the first of 1 … T that is drawn

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The time at the quantile u among those that are left, and weight 1: the others are dropped."""
        left = self.num_timesteps - self.first_time_index + 1
        times = (self.first_time_index + torch.floor(u * left)) / self.num_timesteps
        return times, torch.ones_like(u, dtype=torch.float)

    @torch.no_grad()
    def clip(self, embeddings: Tensor) -> None:
        """Set `first_time_index` for these embeddings (V, d); time 1 is never clipped."""
        wanted = neighbor_distance(embeddings) / embeddings.shape[1] + self.margin
        first = torch.searchsorted(self.ratios, wanted.to(self.ratios).reshape(1))[0] + 1
        self.first_time_index.copy_(first.clamp(max=self.num_timesteps))


class ExaggeratedNoise(ScheduleWrapper):
    """Another schedule, but the timestep that the network is given runs from `min_timestep` to 1."""

    def __init__(self, schedule: Schedule, min_timestep: float) -> None:
        super().__init__(schedule)
        self.min_timestep = min_timestep

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        level: NoiseLevel = self.schedule(t, length)
        timestep = self.min_timestep + (1 - self.min_timestep) * level.timestep
        return NoiseLevel(level.alpha, level.sigma, timestep)


def neighbor_distance(embeddings: Tensor) -> Tensor:
    """The mean over the rows of the squared distance to the nearest other row, in float64."""
    rows = embeddings.double()
    norms = rows.square().sum(1)
    nearest = []
    for block in torch.arange(len(rows), device=rows.device).split(max(1, BLOCK // len(rows))):
        distances = norms[block, None] + norms - 2 * rows[block] @ rows.T
        distances[torch.arange(len(block), device=rows.device), block] = torch.inf  # to itself
        nearest.append(distances.min(1).values.clamp(min=0))
    return torch.cat(nearest).mean()
