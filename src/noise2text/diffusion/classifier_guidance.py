"""Classifier guidance (Diffusion-LM; Li et al., 2022): each step of the walk lands where a class is likelier.

By Bayes' rule ∇ log p(z | c) = ∇ log p(z) + ∇ log p(c | z). A step that would land at z ~ N(μ, s²) goes on
from there by several steps of Adagrad up the slope of

    log C(z)_c + λ · log N(z; μ, s²)

where C is a classifier of noisy text. λ trades the class for fluency: the larger, the closer z stays to what
the model meant. Adagrad divides a slope by its size so far, so only λ weighs the two, not their scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.diffusion.sampler import Landing, Steer

__all__ = ["Guidance"]


@dataclass(frozen=True)
class Guidance:
    """A classifier and the class that it steers to."""

    classifier: nn.Module  # (z, clock, where) → scores of every class
    wanted: int
    steps: int = 3
    rate: float = 0.1
    fluency: float = 0.01  # λ

    def over(self, where: Tensor) -> Steer:
        """Steers the texts that stand at `where` (B, L) on the canvas."""

        def steer(landing: Landing) -> Tensor:
            # Decoding is in inference mode, whose tensors have no gradients: work on copies, outside of it.
            with torch.inference_mode(False), torch.enable_grad():
                return self._climb(landing.copy(), where.clone())

        return steer

    def _climb(self, landing: Landing, where: Tensor) -> Tensor:
        z = nn.Parameter(landing.z.clone())  # Adagrad writes in place
        adagrad = torch.optim.Adagrad([z], lr=self.rate)
        for _ in range(self.steps):
            (slope,) = torch.autograd.grad(-self._height(z, landing, where), [z])
            z.grad = slope
            adagrad.step()
        free = landing.deviation > 0 if self.fluency else torch.ones_like(landing.deviation, dtype=torch.bool)
        return torch.where(free, z.detach(), landing.z)  # fluent is only what was certain

    def _height(self, z: Tensor, landing: Landing, where: Tensor) -> Tensor:
        """What is climbed, summed over the rows, which do not depend on each other."""
        wanted = self.classifier(z, landing.level.clock, where).log_softmax(-1)[:, self.wanted].sum()
        if not self.fluency:
            return wanted
        far = (z - landing.mean) / landing.deviation.where(landing.deviation > 0, 1)
        return wanted - self.fluency * far.square().sum() / 2
