"""Steering climbs log C + λ·log p by Adagrad; without steps it is the plain walk; each row climbs alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from noise2text.diffusion.classifier_guidance import Guidance
from noise2text.diffusion.sampler import Landing, straight
from noise2text.nn.denoiser import Level


class Linear(nn.Module):
    """A classifier whose slope is known: its scores are the mean of z over the text, times a matrix."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, z: Tensor, clock: Tensor, where: Tensor) -> Tensor:
        text = (z * where[..., None]).sum(1) / where.sum(1, keepdim=True)
        return text @ self.weight.T + clock.mean()


@pytest.fixture
def landing() -> Landing:
    torch.manual_seed(0)
    level = Level(torch.tensor([[[0.6]]]), torch.tensor([[[0.8]]]), torch.tensor([[0.4]]))
    mean = torch.randn(3, 5, 4)
    return Landing(mean + 0.3 * torch.randn(3, 5, 4), mean, torch.tensor([[0.3]]), level)


@pytest.fixture
def guidance() -> Guidance:
    torch.manual_seed(1)
    return Guidance(Linear(torch.randn(3, 4)), 2, steps=3, rate=0.1, fluency=0.01)


WHERE = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [1, 0, 0, 0, 0]]).bool()


def climbed(guidance: Guidance, landing: Landing) -> Tensor:
    """The same by hand: Adagrad (Duchi et al., 2011) on the slope that a linear classifier has."""
    assert isinstance(guidance.classifier, Linear)
    weight = guidance.classifier.weight.detach()
    z, total = landing.z.clone(), torch.zeros_like(landing.z)
    for _ in range(guidance.steps):
        told = guidance.classifier(z, landing.level.clock, WHERE).softmax(-1).detach()
        towards = weight[guidance.wanted] - told @ weight  # (B, D), of log softmax
        share = WHERE / WHERE.sum(1, keepdim=True)
        slope = share[..., None] * towards[:, None] - guidance.fluency * (z - landing.mean) / 0.3**2
        total = total + slope**2
        z = z + guidance.rate * slope / (total.sqrt() + 1e-10)
    return z


@pytest.mark.parametrize("fluency", [0.0, 0.01, 3.0])
def test_it_climbs_the_class_and_the_fluency_by_adagrad(
    guidance: Guidance, landing: Landing, fluency: float
) -> None:
    guidance = dataclasses.replace(guidance, fluency=fluency)
    steered = guidance.over(WHERE)(landing)
    assert torch.allclose(steered, climbed(guidance, landing), atol=1e-5)


def test_the_class_becomes_likelier_and_fluency_keeps_it_near(guidance: Guidance, landing: Landing) -> None:
    def likelihood(z: Tensor) -> Tensor:
        scores: Tensor = guidance.classifier(z, landing.level.clock, WHERE)
        return scores.log_softmax(-1)[:, 2].detach()

    steered = guidance.over(WHERE)(landing)
    assert (likelihood(steered) > likelihood(landing.z)).all()
    careful = dataclasses.replace(guidance, fluency=100.0).over(WHERE)(landing)
    assert (careful - landing.mean).norm() < (landing.z - landing.mean).norm()


def test_what_the_step_is_certain_of_stays_where_fluency_counts(guidance: Guidance, landing: Landing) -> None:
    deviation = torch.tensor([0.3, 0, 0.3, 0, 0.3])[None, :, None]
    certain = dataclasses.replace(landing, deviation=deviation)
    moved = (guidance.over(torch.ones_like(WHERE))(certain) != landing.z).all(-1)
    assert moved.tolist() == [[True, False, True, False, True]] * 3
    heedless = dataclasses.replace(guidance, fluency=0.0).over(torch.ones_like(WHERE))(certain)
    assert (heedless != landing.z).all()


def test_without_steps_z_stays_to_the_bit(guidance: Guidance, landing: Landing) -> None:
    still = dataclasses.replace(guidance, steps=0).over(WHERE)(landing)
    assert torch.equal(still, landing.z)
    assert torch.equal(straight(landing), landing.z)


def test_a_row_does_not_depend_on_the_others(guidance: Guidance, landing: Landing) -> None:
    together = guidance.over(WHERE)(landing)
    for row in range(3):
        alone = dataclasses.replace(landing, z=landing.z[row, None], mean=landing.mean[row, None])
        assert torch.allclose(guidance.over(WHERE[row, None])(alone)[0], together[row], atol=1e-6)


def test_it_works_in_inference_mode_and_leaves_the_landing_alone(
    guidance: Guidance, landing: Landing
) -> None:
    outside = guidance.over(WHERE)(landing)
    with torch.inference_mode():
        inside = dataclasses.replace(landing.copy(), z=landing.z * 1, mean=landing.mean * 1)
        before = inside.z.clone()
        assert torch.equal(guidance.over(WHERE)(inside), outside)
        assert torch.equal(inside.z, before)
    assert guidance.classifier.weight.grad is None
