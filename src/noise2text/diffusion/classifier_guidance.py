"""Classifier guidance (Diffusion-LM; Li et al., 2022): move each sampled z to where a class is more likely.

By Bayes' rule ∇ log p(z | c) = ∇ log p(z) + ∇ log p(c | z). After a sampling step proposes z ~ N(μ, s²), some
steps of Adagrad increase

    log C(z)_c + λ · log N(z; μ, s²)

where C is a classifier of noisy text. λ trades the class for fluency: the larger it is, the closer z stays to
the proposal. Adagrad normalises the gradient, so only λ decides between the two terms, not their scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.diffusion.sampler import Guide, Proposal

__all__ = ["ClassifierGuidance"]


@dataclass(frozen=True)
class ClassifierGuidance:
    """A classifier and the class that it guides sampling to."""

    classifier: nn.Module  # (z, timestep, text mask) → the logits of all classes
    target_class: int
    steps: int = 3
    lr: float = 0.1
    fluency: float = 0.01  # λ

    def for_positions(self, text_mask: Tensor) -> Guide:
        """The guide for texts at the positions of the canvas where `text_mask` (B, L) is true."""

        def guide(proposal: Proposal) -> Tensor:
            # Tensors of inference mode, in which sampling runs, have no gradients: work on copies outside it.
            with torch.inference_mode(False), torch.enable_grad():
                return self._optimize(proposal.copy(), text_mask.clone())

        return guide

    def _optimize(self, proposal: Proposal, text_mask: Tensor) -> Tensor:
        z = nn.Parameter(proposal.z.clone())  # Adagrad writes in place
        adagrad = torch.optim.Adagrad([z], lr=self.lr)
        for _ in range(self.steps):
            (gradient,) = torch.autograd.grad(-self._log_objective(z, proposal, text_mask), [z])
            z.grad = gradient
            adagrad.step()
        free = proposal.std > 0 if self.fluency else torch.ones_like(proposal.std, dtype=torch.bool)
        return torch.where(free, z.detach(), proposal.z)  # N(z; μ, 0) allows z = μ only

    def _log_objective(self, z: Tensor, proposal: Proposal, text_mask: Tensor) -> Tensor:
        """log C(z)_c + λ · log N(z; μ, s²), summed over the rows, which do not depend on each other."""
        log_probs = self.classifier(z, proposal.level.timestep, text_mask).log_softmax(-1)
        log_class = log_probs[:, self.target_class].sum()
        if not self.fluency:
            return log_class
        deviation_from_mean = (z - proposal.mean) / proposal.std.where(proposal.std > 0, 1)
        return log_class - self.fluency * deviation_from_mean.square().sum() / 2
