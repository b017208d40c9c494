"""Rectified flow: straight paths, Euler's steps, and a noise factor for its own schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.layouts.base import Source
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.degeneration_score import find_noise_factor, random_embeddings
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.solvers import Ddim, Solver, step_coefficients
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.recipes.flow import RectifiedFlow

from ..conftest import shrunk

RECIPE = find_recipe("flow")
EULER, MULTISTEP = Solver(Ddim(0.0)), Solver(Ddim(0.0), order=2)
NO_SOURCE = EncoderOutput(*(torch.empty(0) for _ in range(4)))
KEYS = make_key(0, torch.arange(64))
NOISE = gaussian_noise(KEYS, 0, 4, 2)  # that of the first step


class Knows(Denoiser):
    """A denoiser that returns what a function says of z and its noise level."""

    def __init__(self, estimate: Callable[[Tensor, NoiseLevel], Tensor]) -> None:
        super().__init__()
        self.estimate = estimate

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
        z0 = self.estimate(z, level)
        return Estimate(z0, z0)


def sample_flow(denoiser: Denoiser, solver: Solver, times: Tensor) -> list[SampledStep]:
    """The steps from `NOISE` at these times of a flow with the noise factor 2."""
    mask, steps = torch.zeros(64, 4, dtype=torch.bool), list[SampledStep]()
    constraint = Constraint(torch.zeros(64, 4, 2), mask, mask)
    flow = RectifiedFlow(10_000, noise_factor=2.0)
    sample(ReverseProcess(denoiser, flow, NO_SOURCE, constraint, KEYS, times, solver), steps.append)
    return steps


@pytest.mark.parametrize("solver", [EULER, MULTISTEP])
@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_with_a_denoiser_that_knows_z0_the_path_is_the_line_to_it(solver: Solver, count: int) -> None:
    z0 = torch.randn(64, 4, 2, generator=torch.Generator().manual_seed(0))
    times = torch.linspace(1, 1e-4, count, dtype=torch.float64)
    steps = sample_flow(Knows(lambda z, level: z0), solver, times)
    assert len(steps) == count
    for step, t in zip(steps, times.float(), strict=True):
        torch.testing.assert_close(step.z, (1 - t) * z0 + 2 * t * NOISE, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(steps[-1].estimate.z0, z0)


def flow_error(solver: Solver, count: int) -> float:
    """How far sampling z₀ ~ N(0.7, 1/4) from its best estimates ends from where the flow of that law ends.

    The paths are curved: z_t keeps its quantile, z_t = α·0.7 + √(α²/4 + σ²)·ξ, with ξ = ε at t = 1.
    """

    def estimate(z: Tensor, level: NoiseLevel) -> Tensor:
        return (0.7 * level.sigma**2 + level.alpha * z / 4) / (level.alpha**2 / 4 + level.sigma**2)

    end = 0.2
    times = torch.linspace(1, end, count + 1, dtype=torch.float64)
    exact = (1 - end) * 0.7 + math.sqrt((1 - end) ** 2 / 4 + (2 * end) ** 2) * NOISE
    return (sample_flow(Knows(estimate), solver, times)[-1].z - exact).square().mean().sqrt().item()


def test_on_a_curved_path_the_second_order_is_closer_than_euler_and_gains_twice_as_fast() -> None:
    euler, multistep = (
        [flow_error(solver, count) for count in (10, 20, 40)] for solver in (EULER, MULTISTEP)
    )
    assert all(second < first / 2 for first, second in zip(euler, multistep, strict=True)), (euler, multistep)
    rates = [[math.log2(a / b) for a, b in pairwise(errors)] for errors in (euler, multistep)]
    assert all(0.8 < rate < 1.3 for rate in rates[0]), rates
    assert all(1.7 < rate < 2.6 for rate in rates[1]), rates


def test_the_first_two_steps_of_multistep_are_eulers_and_later_ones_are_its_own(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    model = RECIPE.build(shrunk(RECIPE.preset("tiny")), tokenizer).eval()

    def last_scores(solver: str, count: int) -> list[list[float]]:
        return model.generate(["7 april 1957"], solver=solver, steps=count, clamp=False).scores

    assert last_scores("multistep", 2) == last_scores("ddim", 2)
    assert last_scores("multistep", 4) != last_scores("ddim", 4)


def test_a_deterministic_step_is_eulers_on_the_velocity() -> None:
    """z_s = z_t + (s − t)·v, with v = ε̂ − ẑ₀ and ε̂ = (z_t − α·ẑ₀) / σ."""
    times = torch.tensor([0.9, 0.4], dtype=torch.float64)
    schedule = RectifiedFlow(1000)
    now, then = (schedule(times[i : i + 1], 1) for i in (0, 1))
    z_weight, z0_weight, noise_weight = step_coefficients(now, then, Ddim(0.0))
    z, z0 = torch.randn(1, 5, 3, dtype=torch.float64), torch.randn(1, 5, 3, dtype=torch.float64)
    velocity = (z - now.alpha * z0) / now.sigma - z0
    torch.testing.assert_close(z_weight * z + z0_weight * z0, z + (times[1] - times[0]) * velocity)
    assert noise_weight.item() == 0


def test_the_path_is_a_straight_line_and_the_velocity_its_slope() -> None:
    z0, noise = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    early, late = (
        RectifiedFlow(100, noise_factor=3.0)(torch.full((2,), t), 4).add_noise(z0, noise)
        for t in (0.25, 0.75)
    )
    torch.testing.assert_close((late - early) / 0.5, 3 * noise - z0)


def test_generation_follows_the_path_of_training(tokenizer: Tokenizer) -> None:
    config = RECIPE.preset("tiny").replace(noise_factor=3.0)
    model = RECIPE.build(config, tokenizer)
    training = RECIPE.objective(config, model).schedule
    times = torch.tensor([0.2, 0.7])
    sampling = model.build_sampling_schedule(model.generation_config)
    assert torch.equal(training(times, 1).sigma, sampling(times, 1).sigma)


def test_the_noise_factor_is_that_of_its_own_schedule(tokenizer: Tokenizer) -> None:
    config = RECIPE.preset("tiny").replace(embedding_dim=16)
    factor = RECIPE.resolve(config, tokenizer).diffusion.noise_factor
    embeddings = random_embeddings(len(tokenizer), 16)
    assert factor == find_noise_factor(RectifiedFlow(), embeddings, target=config.diffusion.max_dgs).factor
    assert factor != find_recipe("difformer").resolve(config, tokenizer).diffusion.noise_factor


def test_no_preset_has_difformers_factor() -> None:
    assert {preset.diffusion.noise_factor for preset in RECIPE.presets.values()} == {None}


@pytest.mark.parametrize(
    "changes",
    [{"schedule": "cosine"}, {"variance_preserving": True}, {"refit_every": 100}, {"rounding_weight": 1.0}],
)
def test_settings_of_difformer_that_it_does_not_have_are_refused(
    changes: dict[str, object], tokenizer: Tokenizer
) -> None:
    with pytest.raises(Problem, match=f"flow has .*: set {next(iter(changes))} to"):
        RECIPE.build(RECIPE.preset("tiny").replace(changes), tokenizer)
