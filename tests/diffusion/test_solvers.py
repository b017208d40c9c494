"""Sampling a Gaussian, whose posterior is known: it ends where theory says, at the promised rate.

With z₀ ~ N(m, v) the best estimate is E[z₀ | z_t] = (m·σ² + α·v·z_t) / (α²·v + σ²), z_t has the variance
α²·v + σ², and the probability flow keeps a point at the same quantile: z_t = α·m + √(α²·v + σ²)·ξ.
"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.layouts.base import Source
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.schedules import SCHEDULES, SignalFloor
from noise2text.diffusion.solvers import ANCESTRAL, Ddim, PriorSampling, Solver, StepColumn
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel

MEAN, VARIANCE, END = 0.7, 0.25, 0.3
NO_SOURCE = EncoderOutput(*(torch.empty(0) for _ in range(4)))


class Posterior(Denoiser):
    """The best estimate there is for the toy."""

    def encode(self, source: Source) -> EncoderOutput:
        return NO_SOURCE

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        mean = (MEAN * level.sigma**2 + level.alpha * VARIANCE * z) / spread(level) ** 2
        return Estimate(mean, mean)


def spread(level: NoiseLevel) -> Tensor:
    """The standard deviation of z_t."""
    return (level.alpha**2 * VARIANCE + level.sigma**2).sqrt()


def sample_gaussian(schedule: str, steps: int, solver: Solver, rows: int) -> tuple[Tensor, Tensor]:
    """Where sampling ends, and where the probability flow from the same noise does."""
    nothing = torch.zeros(rows, 4, 2)
    mask = torch.zeros(rows, 4, dtype=torch.bool)
    keys, times = make_key(0, torch.arange(rows)), torch.linspace(1, END, steps + 1, dtype=torch.float64)
    curve = SCHEDULES[schedule](10_000)
    recorded: list[SampledStep] = []
    constraint = Constraint(nothing, mask, mask)
    sample(
        ReverseProcess(Posterior(), curve, NO_SOURCE, constraint, keys, times, solver=solver), recorded.append
    )
    end, begin = curve(times[-1:], 1), curve(times[:1], 1)
    quantile = (begin.sigma * gaussian_noise(keys, 0, 4, 2) - begin.alpha * MEAN) / spread(begin)
    return recorded[-1].z, (end.alpha * MEAN + spread(end) * quantile).float()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize(("order", "least", "most"), [(1, 0.8, 1.3), (2, 1.7, 2.6)])
def test_the_flow_is_followed_with_the_order_that_is_promised(
    schedule: str, order: int, least: float, most: float
) -> None:
    errors = []
    for steps in (20, 40, 80):
        end, flow = sample_gaussian(schedule, steps, Solver(Ddim(0.0), order), 64)
        errors.append((end - flow).square().mean().sqrt().item())
    rates = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(least < rate < most for rate in rates), (errors, rates)


def test_the_second_order_needs_fewer_steps() -> None:
    errors = {}
    for order, steps in ((1, 40), (2, 10)):
        end, flow = sample_gaussian("cosine", steps, Solver(Ddim(0.0), order), 64)
        errors[order] = (end - flow).square().mean().item()
    assert errors[2] < errors[1]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("eta", [1.0, 0.0, 0.5])
def test_samples_have_the_known_distribution_as_steps_grow(schedule: str, eta: float) -> None:
    level = SCHEDULES[schedule](10_000)(torch.tensor([END], dtype=torch.float64), 1)
    errors = []
    for steps in (4, 16, 256):
        samples, _ = sample_gaussian(schedule, steps, Solver(Ddim(eta)), 4_000)
        errors.append(abs(samples.std().item() - spread(level).item()))
        assert samples.mean().item() == pytest.approx(level.alpha.item() * MEAN, abs=0.03)
    assert errors[-1] < 0.01
    assert errors[-1] < errors[0]


def test_the_first_step_and_the_one_after_pure_noise_are_of_the_first_order() -> None:
    for steps, same in ((1, True), (2, True), (3, False)):
        one, _ = sample_gaussian("sqrt", steps, Solver(Ddim(0.0)), 8)  # its α(1) is 0
        two, _ = sample_gaussian("sqrt", steps, Solver(Ddim(0.0), order=2), 8)
        assert torch.allclose(one, two) == same


@pytest.mark.parametrize("steps", [20, 100])
def test_where_the_noise_stands_still_the_second_order_stays_finite(steps: int) -> None:
    """A floor of the signal repeats levels; a step of no length says nothing about the next."""
    curve = SignalFloor(SCHEDULES["sqrt"](200), 0.01)
    levels = curve(torch.linspace(1, 1 / 200, steps, dtype=torch.float64), 4)
    first, second = (Solver(Ddim(0.0), order).steps(levels) for order in (1, 2))
    assert second.isfinite().all()
    first_weight, second_weight = first[:, StepColumn.Z0_WEIGHT], second[:, StepColumn.Z0_WEIGHT]
    assert second_weight.abs().max() <= 2 * first_weight.abs().max()


def test_solvers_of_equal_values_are_equal_and_share_a_key() -> None:
    """Step tables are kept by the solver that made them."""
    assert Solver() == ANCESTRAL == Solver(Ddim(1.0))
    solvers = [
        Solver(PriorSampling(Ddim(1.0), rate=rate, step_limit=5, seed=seed))
        for rate, seed in ((0.5, 0), (0.5, 0), (0.5, 1), (0.2, 0))
    ]
    assert solvers[0] == solvers[1]
    assert len(set(solvers)) == 3
