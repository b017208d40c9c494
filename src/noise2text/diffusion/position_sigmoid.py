"""The sigmoid schedule by position (thesis, 3.2.5): the last token is noised first, and so written last.

    ᾱ_k(t) = Φ((1 − t − μ_k) / s),    s = 1 / (M + 5),    μ_k = (3 + k)·s,    k = 1 … M

for the M positions of the target. Eq. 3.3 has t for 1 − t, which would take noise away as time goes on,
against condition [D3]; flipping the time (not Φ) keeps the order of fig. 3.2. Close to 0 the variance 1 − ᾱ_k
would vanish too fast: from 0.02 on it falls on a straight line to 0 at t = 0 (footnote 1). Only the last
position is above that at t = 0: it ends at Φ(−2) = 0.023.

Every position is told the same clock, the time: with places that do not move, time and place say the level.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from torch import Tensor

from noise2text.diffusion.schedules import AlphaBarSchedule
from noise2text.nn.denoiser import NoiseLevel

__all__ = ["PositionSigmoid"]

MIN_VARIANCE = 0.02  # the variance below which it falls on a line
_MIN_ALPHA_BAR = 1e-12  # ᾱ far from a position's turn: 0 has no ratio to itself, which a step needs


class PositionSigmoid(AlphaBarSchedule):
    """Position after position, from the right; what stands before the target has its first one's level."""

    def __init__(self, steps: int = 2000, *, target_start: int, positions: int) -> None:
        """The target has so many positions, from `target_start` on."""
        super().__init__(steps)
        self.target_start, self.positions = target_start, positions

    def alpha_bar(self, t: Tensor) -> Tensor:
        """ᾱ at the times t (B,), a column a position of the target."""
        width = 1 / (self.positions + 5)
        means = (3 + torch.arange(1, self.positions + 1, device=t.device, dtype=torch.float64)) * width
        variance = torch.special.ndtr((t.double()[:, None] - 1 + means) / width)  # 1 − Φ(x) = Φ(−x)
        quantile = NormalDist().inv_cdf(MIN_VARIANCE)
        linear_below = (1 - means + quantile * width).clamp(min=0)  # where the variance is the cut-off
        line = MIN_VARIANCE * t.double()[:, None] / linear_below
        return (1 - torch.where(t[:, None] < linear_below, line, variance)).clamp(min=_MIN_ALPHA_BAR)

    @property
    def z0_noise(self) -> float:
        return math.sqrt(MIN_VARIANCE)

    @property
    def final_alpha(self) -> float:
        """√ᾱ of the position that keeps most of its signal at time 1."""
        return float(self.alpha_bar(torch.ones(1, dtype=torch.float64)).max().sqrt())

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        """The level of each row at its time t (B,), for each of the first `length` places of a canvas."""
        places = (torch.arange(length, device=t.device) - self.target_start).clamp(0, self.positions - 1)
        return self.level(self.alpha_bar(t)[:, places], t[:, None])
