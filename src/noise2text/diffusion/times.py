"""Which time a training pair is noised to."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Uniform"]


class Uniform(nn.Module):
    """Each of the T times 1/T, 2/T, …, 1 with the same probability."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The time at the quantile u ∈ [0, 1), and the weight that makes up for choosing it."""
        return (torch.floor(u * self.steps) + 1) / self.steps, torch.ones_like(u, dtype=torch.float)
