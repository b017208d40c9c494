"""Positions that move through time at different speeds, the left ones first (AR-Diffusion, Wu et al., 2023).

A sentence of N positions has the time s ∈ [0, N + T] in steps. A line goes from its start point

    (n_s, t_s) = (max(N − s, 0), max(s − N, 0))    to the anchor    (n_e, t_e) = (2·N, T),

and a position's own time is the line's height there, f(n, s) = t_s + (t_e − t_s)·(n − n_s)/(n_e − n_s),
between 0 and T. So at s = N + T all positions are noise, at s = 0 all are clean, and in between a position
never has more noise than one to its right. Here s/(N + T) is the time t ∈ [0, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from noise2text.diffusion.schedules import AlphaBarSchedule
from noise2text.nn.denoiser import NoiseLevel

__all__ = ["TokenSpeeds"]


class TokenSpeeds(AlphaBarSchedule):
    """Another schedule, at a time of its own for each of `positions` positions."""

    def __init__(self, schedule: AlphaBarSchedule, positions: int, *, anchor_distance: float = 2.0) -> None:
        """The anchor lies `anchor_distance` · N positions to the right; the farther, the more equal the speeds."""
        super().__init__(schedule.steps)
        self.schedule, self.positions, self.anchor_distance = schedule, positions, anchor_distance

    def position_times(self, t: Tensor) -> Tensor:
        """Each position's own time (B, N) when the sentence's is t (B,).

        Until the sentence's last step none falls below the schedule's first, 1/T: there the step would divide
        by a noise of 0.
        """
        count, steps = self.positions, self.steps
        time = t.double()[:, None] * (count + steps)  # s
        start, height = (count - time).clamp(min=0), (time - count).clamp(min=0) / steps
        places = torch.arange(count, dtype=torch.float64, device=t.device)
        slope = (1 - height) / (self.anchor_distance * count - start)
        first_step_time = t.double()[:, None].clamp(max=1 / steps)
        return torch.maximum(height + slope * (places - start), first_step_time).clamp(max=1)

    def alpha_bar(self, t: Tensor) -> Tensor:
        """ᾱ at the times t (B,), a column a position."""
        return self.schedule.alpha_bar(self.position_times(t))

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        """The level of each row at its time t (B,), for each of the first `length` positions."""
        position_times = self.position_times(t)[:, :length]
        return self.level(self.schedule.alpha_bar(position_times), position_times)
