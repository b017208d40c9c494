"""Time warping (CDCD, Dieleman et al., 2022): a noise level is drawn more often where the loss rises faster.

The noise σ̃ relative to a signal of 1 runs from σ̃_min to σ̃_max. With the cross-entropy L(σ̃) as the
unnormalised distribution function of the levels, uniform u ∈ [0, 1] becomes the level

    σ̃ = L⁻¹(L_min + u · (L_max − L_min)),

so that the loss is linear in u. That is SeqDiffuSeq's refit for one position, fitted to cross-entropies, and
u is the timestep that the network is given. Signal and noise are divided by √(1 + σ̃²), as CDCD scales the
input of its network; DDIM with eta 0 is then Euler's method on its probability flow dz = (z − ẑ₀)/σ̃ dσ̃.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.schedules import AlphaBarSchedule

__all__ = ["ExponentialSchedule", "WarpedSchedule"]


class ExponentialSchedule(AlphaBarSchedule):
    """σ/α rises geometrically from `sigma_min` to `sigma_max`; ᾱ(0) < 1, as there is always some noise."""

    def __init__(
        self, num_timesteps: int = 2000, *, sigma_min: float = 1.0, sigma_max: float = 300.0
    ) -> None:
        super().__init__(num_timesteps)
        self.sigma_min, self.sigma_max = sigma_min, sigma_max

    def alpha_bar(self, t: Tensor) -> Tensor:
        noise = self.sigma_min * torch.exp(t * math.log(self.sigma_max / self.sigma_min))
        return 1 / (1 + noise.square())


class WarpedSchedule(AdaptiveSchedule):
    """One schedule for all positions, refitted so that the mean loss of a row is linear in time."""

    def __init__(self, start: AlphaBarSchedule, *, bin_size: int = 20, min_count: int = 100) -> None:
        super().__init__(start, 1, bin_size=bin_size, min_count=min_count)

    @torch.no_grad()
    def observe(self, t: Tensor, losses: Tensor, mask: Tensor) -> None:
        """Add the mean loss of each row at its time t, over the losses (B, L) where the mask is true."""
        counts = mask.sum(1, keepdim=True)
        mean = torch.where(mask, losses, 0).sum(1, keepdim=True) / counts.clamp(min=1)
        super().observe(t, mean, counts > 0)
