"""Positions that are denoised at different speeds, the left ones first (AR-Diffusion, Wu et al., 2023).

A sentence of N positions has the time s ∈ [0, N + T] in steps. A line goes from its start point

    (n_s, t_s) = (max(N − s, 0), max(s − N, 0))    to the anchor    (n_e, t_e) = (2·N, T),

and the time of position n is the height of the line at n, f(n, s) = t_s + (t_e − t_s)·(n − n_s)/(n_e − n_s),
clipped to [0, T]. So at s = N + T all positions are noise, at s = 0 all are clean, and in between a position
never has more noise than one to its right. Here t = s/(N + T) ∈ [0, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from noise2text.diffusion.schedules import AlphaBarSchedule
from noise2text.nn.denoiser import NoiseLevel

__all__ = ["TokenSpeeds"]


class TokenSpeeds(AlphaBarSchedule):
    """Another schedule, evaluated at a separate time for each of `positions` positions."""

    def __init__(self, schedule: AlphaBarSchedule, positions: int, *, anchor_distance: float = 2.0) -> None:
        """The anchor is at position `anchor_distance` · N; the larger it is, the more equal the speeds."""
        super().__init__(schedule.num_timesteps)
        self.schedule, self.positions, self.anchor_distance = schedule, positions, anchor_distance

    def position_times(self, t: Tensor) -> Tensor:
        """The time of each position (B, N) when the time of the sentence is t (B,).

        No position's time falls below 1/T before the last step of the sentence, since a sampling step divides
        by the noise there.
        """
        count, steps = self.positions, self.num_timesteps
        time = t.double()[:, None] * (count + steps)  # s
        start, height = (count - time).clamp(min=0), (time - count).clamp(min=0) / steps
        indices = torch.arange(count, dtype=torch.float64, device=t.device)
        slope = (1 - height) / (self.anchor_distance * count - start)
        first_step_time = t.double()[:, None].clamp(max=1 / steps)
        return torch.maximum(height + slope * (indices - start), first_step_time).clamp(max=1)

    def alpha_bar(self, t: Tensor) -> Tensor:
        """ᾱ (B, N) at the times t (B,) of the sentences."""
        return self.schedule.alpha_bar(self.position_times(t))

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        """The noise level of each row at its time t (B,), for each of the first `length` positions."""
        position_times = self.position_times(t)[:, :length]
        return self.level(self.schedule.alpha_bar(position_times), position_times)
