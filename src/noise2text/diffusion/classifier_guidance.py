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

from noise2text.diffusion.sampler import Guide, Proposal

__all__ = ["ClassifierGuidance"]


@dataclass(frozen=True)
class ClassifierGuidance:
    """A classifier and the class that it steers to."""

    classifier: nn.Module  # (z, clock, where) → scores of every class
    target_class: int
    steps: int = 3
    lr: float = 0.1
    fluency: float = 0.01  # λ

    def for_positions(self, where: Tensor) -> Guide:
        """Steers the texts that stand at `where` (B, L) on the canvas."""

        def guide(proposal: Proposal) -> Tensor:
            # Decoding is in inference mode, whose tensors have no gradients: work on copies, outside of it.
            with torch.inference_mode(False), torch.enable_grad():
                return self._optimize(proposal.copy(), where.clone())

        return guide

    def _optimize(self, proposal: Proposal, where: Tensor) -> Tensor:
        z = nn.Parameter(proposal.z.clone())  # Adagrad writes in place
        adagrad = torch.optim.Adagrad([z], lr=self.lr)
        for _ in range(self.steps):
            (gradient,) = torch.autograd.grad(-self._log_objective(z, proposal, where), [z])
            z.grad = gradient
            adagrad.step()
        free = proposal.std > 0 if self.fluency else torch.ones_like(proposal.std, dtype=torch.bool)
        return torch.where(free, z.detach(), proposal.z)  # fluent is only what was certain

    def _log_objective(self, z: Tensor, proposal: Proposal, where: Tensor) -> Tensor:
        """What is climbed, summed over the rows, which do not depend on each other."""
        wanted = (
            self.classifier(z, proposal.level.timestep, where).log_softmax(-1)[:, self.target_class].sum()
        )
        if not self.fluency:
            return wanted
        deviation_from_mean = (z - proposal.mean) / proposal.std.where(proposal.std > 0, 1)
        return wanted - self.fluency * deviation_from_mean.square().sum() / 2
