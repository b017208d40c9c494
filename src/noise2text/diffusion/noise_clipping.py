"""Noise that is large enough to matter (DiNoiSer, Ye et al., 2023).

Training: where the noise is small beside the way to the next embedding, any network reads the token off
the canvas and learns nothing of the source. So no training time has less noise for its signal than

    σ²/α² = δ²/d + margin,    δ² the mean over the tokens of the squared distance to their nearest neighbour,

found anew as the embeddings move. Generation: a network that is told of much noise trusts the source more
than the canvas; so it is told a time near 1 all the way down, while the canvas follows the true one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noise2text.diffusion.schedules import AlphaBarSchedule
from noise2text.diffusion.time_samplers import TimeSampler
from noise2text.nn.denoiser import NoiseLevel

__all__ = ["ClippedTimes", "ExaggeratedNoise", "QuadraticSchedule", "neighbour_distance"]

BLOCK = 2**24  # about how many distances are held at once


class QuadraticSchedule(AlphaBarSchedule):
    """σ(t) = t: the time is the noise's standard deviation, and ᾱ = 1 − t²."""

    def alpha_bar(self, t: Tensor) -> Tensor:
        return 1 - t.square()


class ClippedTimes(TimeSampler):
    """Uniform over the times whose noise-to-signal ratio is at least the clip's; the clip is in a buffer."""

    def __init__(self, schedule: AlphaBarSchedule, *, margin: float = 0.0) -> None:
        super().__init__(schedule.steps)
        self.margin = margin
        signal = schedule.alpha_bar(torch.arange(1, self.steps + 1, dtype=torch.float64) / self.steps)
        self.register_buffer("ratios", (1 - signal) / signal, persistent=False)  # (T,), rising
        self.register_buffer("first_timestep", torch.ones((), dtype=torch.long))

    ratios: Tensor
    first_timestep: Tensor  # the number of the first time that is drawn, from 1

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The time at the quantile u among those that are left, and weight 1: the others are given up."""
        left = self.steps - self.first_timestep + 1
        return (self.first_timestep + torch.floor(u * left)) / self.steps, torch.ones_like(
            u, dtype=torch.float
        )

    @torch.no_grad()
    def clip(self, embeddings: Tensor) -> None:
        """Move the clip to where these embeddings (V, d) want it; the last time is always left."""
        wanted = neighbour_distance(embeddings) / embeddings.shape[1] + self.margin
        first = torch.searchsorted(self.ratios, wanted.to(self.ratios).reshape(1))[0] + 1
        self.first_timestep.copy_(first.clamp(max=self.steps))


class ExaggeratedNoise(nn.Module):
    """Another schedule, of which the network is told times from `least` to 1 instead of 0 to 1."""

    def __init__(self, schedule: nn.Module, min_timestep: float) -> None:
        super().__init__()
        self.schedule, self.min_timestep = schedule, min_timestep

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        level: NoiseLevel = self.schedule(t, length)
        return NoiseLevel(
            level.alpha, level.sigma, self.min_timestep + (1 - self.min_timestep) * level.timestep
        )


def neighbour_distance(embeddings: Tensor) -> Tensor:
    """The mean over the rows of the squared distance to the nearest other row, in float64."""
    rows = embeddings.double()
    norms = rows.square().sum(1)
    nearest = []
    for places in torch.arange(len(rows), device=rows.device).split(max(1, BLOCK // len(rows))):
        distances = norms[places, None] + norms - 2 * rows[places] @ rows.T
        distances[torch.arange(len(places), device=rows.device), places] = torch.inf
        nearest.append(distances.min(1).values.clamp(min=0))
    return torch.cat(nearest).mean()
