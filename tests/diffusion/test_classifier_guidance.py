"""Guidance climbs log C + λ·log p by Adagrad; without steps it changes nothing; each row climbs alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from noise2text.diffusion.classifier_guidance import ClassifierGuidance
from noise2text.diffusion.sampler import Proposal
from noise2text.nn.denoiser import NoiseLevel


class Linear(nn.Module):
    """A classifier whose slope is known: its scores are the mean of z over the text, times a matrix."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, z: Tensor, timestep: Tensor, where: Tensor) -> Tensor:
        text = (z * where[..., None]).sum(1) / where.sum(1, keepdim=True)
        return text @ self.weight.T + timestep.mean()


@pytest.fixture
def proposal() -> Proposal:
    torch.manual_seed(0)
    level = NoiseLevel(torch.tensor([[[0.6]]]), torch.tensor([[[0.8]]]), torch.tensor([[0.4]]))
    mean = torch.randn(3, 5, 4)
    return Proposal(mean + 0.3 * torch.randn(3, 5, 4), mean, torch.tensor([[0.3]]), level)


@pytest.fixture
def guidance() -> ClassifierGuidance:
    torch.manual_seed(1)
    return ClassifierGuidance(Linear(torch.randn(3, 4)), 2, steps=3, lr=0.1, fluency=0.01)


WHERE = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [1, 0, 0, 0, 0]]).bool()


def climbed(guidance: ClassifierGuidance, proposal: Proposal) -> Tensor:
    """The same by hand: Adagrad (Duchi et al., 2011) on the slope that a linear classifier has."""
    assert isinstance(guidance.classifier, Linear)
    weight = guidance.classifier.weight.detach()
    z, total = proposal.z.clone(), torch.zeros_like(proposal.z)
    for _ in range(guidance.steps):
        probabilities = guidance.classifier(z, proposal.level.timestep, WHERE).softmax(-1).detach()
        towards = weight[guidance.target_class] - probabilities @ weight  # (B, D), of log softmax
        share = WHERE / WHERE.sum(1, keepdim=True)
        slope = share[..., None] * towards[:, None] - guidance.fluency * (z - proposal.mean) / 0.3**2
        total = total + slope**2
        z = z + guidance.lr * slope / (total.sqrt() + 1e-10)
    return z


@pytest.mark.parametrize("fluency", [0.0, 0.01, 3.0])
def test_it_climbs_the_class_and_the_fluency_by_adagrad(
    guidance: ClassifierGuidance, proposal: Proposal, fluency: float
) -> None:
    guidance = dataclasses.replace(guidance, fluency=fluency)
    steered = guidance.for_positions(WHERE)(proposal)
    assert torch.allclose(steered, climbed(guidance, proposal), atol=1e-5)


def test_the_class_becomes_likelier_and_fluency_keeps_it_near(
    guidance: ClassifierGuidance, proposal: Proposal
) -> None:
    def likelihood(z: Tensor) -> Tensor:
        scores: Tensor = guidance.classifier(z, proposal.level.timestep, WHERE)
        return scores.log_softmax(-1)[:, 2].detach()

    steered = guidance.for_positions(WHERE)(proposal)
    assert (likelihood(steered) > likelihood(proposal.z)).all()
    careful = dataclasses.replace(guidance, fluency=100.0).for_positions(WHERE)(proposal)
    assert (careful - proposal.mean).norm() < (proposal.z - proposal.mean).norm()


def test_what_the_step_is_certain_of_stays_where_fluency_counts(
    guidance: ClassifierGuidance, proposal: Proposal
) -> None:
    std = torch.tensor([0.3, 0, 0.3, 0, 0.3])[None, :, None]
    certain = dataclasses.replace(proposal, std=std)
    moved = (guidance.for_positions(torch.ones_like(WHERE))(certain) != proposal.z).all(-1)
    assert moved.tolist() == [[True, False, True, False, True]] * 3
    heedless = dataclasses.replace(guidance, fluency=0.0).for_positions(torch.ones_like(WHERE))(certain)
    assert (heedless != proposal.z).all()


def test_without_steps_z_stays_to_the_bit(guidance: ClassifierGuidance, proposal: Proposal) -> None:
    still = dataclasses.replace(guidance, steps=0).for_positions(WHERE)(proposal)
    assert torch.equal(still, proposal.z)


def test_a_row_does_not_depend_on_the_others(guidance: ClassifierGuidance, proposal: Proposal) -> None:
    together = guidance.for_positions(WHERE)(proposal)
    for row in range(3):
        alone = dataclasses.replace(proposal, z=proposal.z[row, None], mean=proposal.mean[row, None])
        assert torch.allclose(guidance.for_positions(WHERE[row, None])(alone)[0], together[row], atol=1e-6)


def test_it_works_in_inference_mode_and_leaves_the_landing_alone(
    guidance: ClassifierGuidance, proposal: Proposal
) -> None:
    outside = guidance.for_positions(WHERE)(proposal)
    with torch.inference_mode():
        inside = dataclasses.replace(proposal.copy(), z=proposal.z * 1, mean=proposal.mean * 1)
        before = inside.z.clone()
        assert torch.equal(guidance.for_positions(WHERE)(inside), outside)
        assert torch.equal(inside.z, before)
    assert guidance.classifier.weight.grad is None
