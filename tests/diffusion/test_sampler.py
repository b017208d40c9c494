"""A step is DDPM's posterior; sampling ends at what the denoiser estimates; given positions never change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.layouts.base import Source
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.schedules import SCHEDULES, Rescaled, VariancePreserving, schedule_betas
from noise2text.diffusion.solvers import ANCESTRAL, Ddim, Solver, step_coefficients, strided_times
from noise2text.nn.denoiser import ClampedDenoiser, Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding

T = 2000


def levels(name: str, times: Tensor) -> NoiseLevel:
    return SCHEDULES[name](T)(times, 1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_neighboring_steps_equal_ddpm_posterior(name: str) -> None:
    times = torch.arange(1, T + 1, dtype=torch.float64) / T
    beta = schedule_betas(SCHEDULES[name](T), T)
    alpha_bar = torch.cumprod(1 - beta, 0)
    inner = slice(1, T - 1)  # the last β is capped, the first has no step before it
    now, then = levels(name, times[1:]), levels(name, times[:-1])
    z_weight, z0_weight, noise_weight = (c.flatten()[: T - 2] for c in step_coefficients(now, then))
    before, here, b = alpha_bar[:-1][: T - 2], alpha_bar[inner], beta[inner]
    assert torch.allclose(z_weight, (1 - b).sqrt() * (1 - before) / (1 - here), rtol=0, atol=1e-6)
    assert torch.allclose(z0_weight, before.sqrt() * b / (1 - here), rtol=0, atol=1e-6)
    assert torch.allclose(noise_weight**2, b * (1 - before) / (1 - here), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_two_ancestral_steps_have_the_marginals_of_one(name: str) -> None:
    """With the true z₀, z_s is α_s·z₀ plus noise of variance σ_s², however the way was strided."""
    times = torch.tensor([0.9, 0.6, 0.35, 0.1], dtype=torch.float64)
    level = levels(name, times)
    signal, variance = level.alpha[0], level.sigma[0] ** 2
    for i in range(len(times) - 1):
        now = NoiseLevel(level.alpha[i], level.sigma[i], level.timestep[i])
        then = NoiseLevel(level.alpha[i + 1], level.sigma[i + 1], level.timestep[i + 1])
        for eta in (0.0, 0.4, 1.0):
            z_weight, z0_weight, noise_weight = step_coefficients(now, then, Ddim(eta))
            assert torch.allclose(z_weight * signal + z0_weight, then.alpha)
            assert torch.allclose(z_weight**2 * variance + noise_weight**2, then.sigma**2)
        signal, variance = then.alpha, then.sigma**2


def test_the_step_works_position_by_position() -> None:
    times = torch.tensor([[0.9, 0.5, 0.7], [0.4, 0.3, 0.2]], dtype=torch.float64)
    whole = [SCHEDULES["sqrt"](T)(row, 1) for row in times]
    together = step_coefficients(whole[0], whole[1])
    for position in range(3):
        alone = [
            NoiseLevel(level.alpha[position], level.sigma[position], level.timestep[position])
            for level in whole
        ]
        for a, b in zip(together, step_coefficients(alone[0], alone[1]), strict=True):
            assert torch.equal(a[position], b)


def test_eta_one_is_ancestral_and_eta_zero_draws_nothing() -> None:
    level = levels("sqrt", torch.tensor([0.8, 0.5], dtype=torch.float64))
    now, then = (NoiseLevel(level.alpha[i], level.sigma[i], level.timestep[i]) for i in range(2))
    assert Ddim(1.0) == ANCESTRAL.stochasticity
    for a, b in zip(step_coefficients(now, then, Ddim(1.0)), step_coefficients(now, then), strict=True):
        assert torch.equal(a, b)
    assert step_coefficients(now, then, Ddim(0.0))[2].item() == 0


@pytest.mark.parametrize("preserving", [False, True])
def test_steps_of_a_rescaled_schedule_are_its_own_posterior(preserving: bool) -> None:
    """Rescaled levels are those of noise F·ε: the posterior of z_s given z_t and z₀ by Bayes' rule."""
    schedule = Rescaled(SCHEDULES["sqrt"](T), 4.0)
    level = (VariancePreserving(schedule) if preserving else schedule)(torch.tensor([0.7, 0.4]), 1)
    (a_t, a_s), (s_t, s_s) = level.alpha.flatten(), level.sigma.flatten()
    covariance = torch.stack(
        [torch.stack([s_s**2, a_t / a_s * s_s**2]), torch.stack([a_t / a_s * s_s**2, s_t**2])]
    )
    gain = covariance[0, 1] / covariance[1, 1]
    now, then = (NoiseLevel(level.alpha[i], level.sigma[i], level.timestep[i]) for i in range(2))
    z_weight, z0_weight, noise_weight = step_coefficients(now, then)
    assert torch.allclose(z_weight.squeeze(), gain)
    assert torch.allclose(z0_weight.squeeze(), a_s - gain * a_t)
    assert torch.allclose(noise_weight.squeeze() ** 2, covariance[0, 0] - gain * covariance[0, 1])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", SCHEDULES)
def test_any_number_of_steps_has_finite_factors_that_keep_the_marginals(name: str, order: int) -> None:
    """With 12,000 steps several of sqrt's first times are pure noise, and z must stay a standard normal."""
    table = Solver(order=order).steps(levels(name, strided_times(12_000, num_timesteps=T)))[..., 0]  # (K, 7)
    assert table.isfinite().all()
    sigma, z_weight, noise_weight = table[1:, 1].double(), table[1:, 3].double(), table[1:, 6].double()
    kept = z_weight**2 * table[:-1, 1].double() ** 2 + noise_weight**2
    assert torch.allclose(kept, sigma**2, atol=1e-6)


def test_strided_times_are_the_papers() -> None:
    times = strided_times(20, num_timesteps=2000, stop_early=5)
    assert len(times) == 15
    assert times[0] == 1
    assert strided_times(20, num_timesteps=2000)[-1].item() == pytest.approx(1 / 2000)
    assert strided_times(1, num_timesteps=2000).tolist() == [1.0]
    assert torch.allclose(strided_times(2000, num_timesteps=2000), torch.arange(2000, 0, -1).double() / 2000)


class Oracle(Denoiser):
    """Always estimates the answer, and records its calls."""

    def __init__(self, answer: Tensor, embedding: TokenEmbedding) -> None:
        super().__init__()
        self.answer, self.embedding = answer, embedding
        self.calls: list[tuple[float, Tensor, Tensor | None]] = []

    def encode(self, source: Source) -> EncoderOutput:
        raise AssertionError("sampling encodes no source")

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        self.calls.append((level.timestep.item(), z, self_condition))
        return Estimate(self.answer, self.answer)


def constraint_of(answer: Tensor, given: int = 0) -> Constraint:
    mask = torch.zeros(answer.shape[:2], dtype=torch.bool)
    mask[:, :given] = True
    return Constraint(torch.full_like(answer, 7.0), mask, torch.zeros_like(mask))


NO_SOURCE = EncoderOutput(*(torch.empty(0) for _ in range(4)))


@pytest.fixture
def embedding() -> TokenEmbedding:
    torch.manual_seed(0)
    return TokenEmbedding(11, 6)


def sample_steps(denoiser: Denoiser, constraint: Constraint, steps: int, **options: Any) -> list[SampledStep]:
    """All steps with the sqrt schedule; row i has the noise of key (0, i)."""
    recorded: list[SampledStep] = []
    keys = make_key(0, torch.arange(len(constraint.embeddings)))
    times = strided_times(steps, num_timesteps=T)
    schedule = SCHEDULES["sqrt"](T)
    sample(ReverseProcess(denoiser, schedule, NO_SOURCE, constraint, keys, times, **options), recorded.append)
    return recorded


def test_the_denoiser_reads_one_timestep_less_and_z_ends_near_its_answer(embedding: TokenEmbedding) -> None:
    answer = torch.randn(3, 5, 6)
    oracle = Oracle(answer, embedding)
    steps = sample_steps(oracle, constraint_of(answer), 40)
    assert [timestep for timestep, _, _ in oracle.calls] == pytest.approx([s.time - 1 / T for s in steps])
    assert (steps[-1].z - answer).abs().mean() < 0.2
    assert (steps[0].z - answer).abs().mean() > 0.5


@pytest.mark.parametrize("solver", [ANCESTRAL, Solver(Ddim(0.0)), Solver(Ddim(0.0), order=2)])
def test_showing_the_steps_changes_nothing_and_the_last_one_shows_what_is_returned(
    embedding: TokenEmbedding, solver: Solver
) -> None:
    """A denoiser whose estimate depends on everything that a step can change."""

    class Mixing(Oracle):
        def forward(
            self,
            z: Tensor,
            level: NoiseLevel,
            encoded: EncoderOutput,
            constraint: Constraint,
            self_condition: Tensor | None,
        ) -> Estimate:
            assert self_condition is not None
            z0 = torch.tanh(self.answer + 0.5 * z - 0.25 * self_condition) * level.alpha
            return Estimate(z0, z0 + z)

    answer = torch.randn(3, 5, 6)
    constraint, keys = constraint_of(answer, given=1), make_key(0, torch.arange(3))
    times, steps = strided_times(7, num_timesteps=T), list[SampledStep]()
    denoiser, schedule = Mixing(answer, embedding), SCHEDULES["sqrt"](T)
    process = ReverseProcess(denoiser, schedule, NO_SOURCE, constraint, keys, times, solver=solver)
    silent, shown = sample(process), sample(process, steps.append)
    assert [step.time for step in steps] == times.tolist()
    for estimate in (shown, steps[-1].estimate):
        assert torch.equal(estimate.z0, silent.z0)
        assert torch.equal(estimate.hidden, silent.hidden)


@pytest.mark.parametrize("length", [5, 900, 4000])  # drawn for all ten steps at once, for four, for one
def test_noise_is_a_steps_own_however_many_steps_it_is_drawn_for(
    embedding: TokenEmbedding, length: int
) -> None:
    keys, answer = make_key(0, torch.arange(3)), torch.zeros(3, length, 6)
    rows = ANCESTRAL.steps(levels("sqrt", strided_times(10, num_timesteps=T)))[:, 3:, 0]  # the four weights
    z = torch.zeros_like(answer)
    steps = sample_steps(Oracle(answer, embedding), constraint_of(answer), 10)
    for number, (step, (z_weight, _, _, noise_weight)) in enumerate(zip(steps, rows, strict=True)):
        z = z_weight * z + noise_weight * gaussian_noise(keys, number, length, 6)
        torch.testing.assert_close(step.z, z)
        z = step.z


def test_the_denoiser_is_conditioned_on_its_previous_estimate(embedding: TokenEmbedding) -> None:
    answer = torch.randn(1, 2, 6)
    oracle = Oracle(answer, embedding)
    sample_steps(oracle, constraint_of(answer), 3)
    conditions = [self_condition for _, _, self_condition in oracle.calls if self_condition is not None]
    assert len(conditions) == 3
    assert not conditions[0].any()
    assert all(torch.equal(self_condition, answer) for self_condition in conditions[1:])


def test_given_positions_stay_put_at_every_step(embedding: TokenEmbedding) -> None:
    answer = torch.randn(2, 4, 6)
    steps = sample_steps(Oracle(answer, embedding), constraint_of(answer, given=2), 5)
    assert len(steps) == 5
    for step in steps:
        assert (step.z[:, :2] == 7).all()
        assert (step.estimate.z0[:, :2] == 7).all()
        assert not (step.z[:, 2:] == 7).any()


def test_clamping_gives_embeddings(embedding: TokenEmbedding) -> None:
    answer = torch.randn(2, 4, 6)
    clamped = ClampedDenoiser(Oracle(answer, embedding))
    nearest = torch.cdist(answer.flatten(0, 1), embedding.vectors).argmin(1).view(2, 4)
    steps = sample_steps(clamped, constraint_of(answer), 2)
    assert len(steps) == 2
    for step in steps:
        distances = torch.cdist(step.estimate.z0.flatten(0, 1), embedding.vectors)
        assert distances.min(1).values.max() < 1e-5
        assert torch.equal(distances.argmin(1).view(2, 4), nearest)
