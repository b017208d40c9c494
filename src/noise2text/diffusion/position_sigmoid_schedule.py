"""The position-dependent sigmoid schedule (Demirag, 2023, 3.2.5): the last token is noised first.

    ᾱ_k(t) = Φ((1 − t − μ_k) / s),    s = 1 / (M + 5),    μ_k = (3 + k)·s,    k = 1 … M

for the M positions of the target. Eq. 3.3 has t in place of 1 − t, which would reduce the noise over time,
against condition [D3]; reversing the time (not Φ) keeps the order of fig. 3.2. Near t = 0 the variance
1 − ᾱ_k would vanish too fast: below 0.02 it is linear, with 0 at t = 0 (footnote 1). Only the last position
stays above that: its variance at t = 0 is Φ(−2) = 0.023.

All positions have the same timestep, the time. Positions are fixed, so time and position determine the level.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from torch import Tensor

from noise2text.diffusion.schedules import AlphaBarSchedule
from noise2text.nn.denoiser import NoiseLevel

__all__ = ["PositionSigmoid"]

MIN_VARIANCE = 0.02  # below this variance the schedule is linear
_MIN_ALPHA_BAR = 1e-12  # ᾱ where a position is pure noise: above 0, since a step needs ratios of ᾱ


class PositionSigmoid(AlphaBarSchedule):
    """One sigmoid per target position, from the right; the positions before it have the first one's level."""

    def __init__(self, num_timesteps: int = 2000, *, target_start: int, positions: int) -> None:
        """The target has `positions` positions, the first of them at `target_start`."""
        super().__init__(num_timesteps)
        self.target_start, self.positions = target_start, positions

    def alpha_bar(self, t: Tensor) -> Tensor:
        """ᾱ (B, M) at the times t (B,), one column per target position."""
        width = 1 / (self.positions + 5)
        means = (3 + torch.arange(1, self.positions + 1, device=t.device, dtype=torch.float64)) * width
        variance = torch.special.ndtr((t.double()[:, None] - 1 + means) / width)  # 1 − Φ(x) = Φ(−x)
        quantile = NormalDist().inv_cdf(MIN_VARIANCE)
        linear_below = (1 - means + quantile * width).clamp(min=0)  # when the variance is MIN_VARIANCE
        line = MIN_VARIANCE * t.double()[:, None] / linear_below
        return (1 - torch.where(t[:, None] < linear_below, line, variance)).clamp(min=_MIN_ALPHA_BAR)

    @property
    def z0_noise(self) -> float:
        return math.sqrt(MIN_VARIANCE)

    def measure_final_alpha(self, changed: AlphaBarSchedule) -> float:
        """√ᾱ of the position that keeps most of its signal at time 1."""
        return float(changed.alpha_bar(torch.ones(1, dtype=torch.float64)).max().sqrt())

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        """The noise level of each row at its time t (B,), for the first `length` positions of a canvas."""
        columns = (torch.arange(length, device=t.device) - self.target_start).clamp(0, self.positions - 1)
        return self.level(self.alpha_bar(t)[:, columns], t[:, None])
