"""A step is DDPM's posterior; a walk reaches what its denoiser sees; what is held stays put."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.layouts.base import Source
from noise2text.diffusion.sampler import (
    ancestral,
    coefficients,
    compute_step_table,
    ddim,
    sample,
    strided_times,
)
from noise2text.diffusion.schedules import SCHEDULES, Rescaled, VariancePreserving, schedule_betas
from noise2text.nn.denoiser import ClampedDenoiser, Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding

T = 2000


def levels(name: str, times: Tensor) -> NoiseLevel:
    return SCHEDULES[name](T)(times, 1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_neighbouring_steps_equal_ddpm_posterior(name: str) -> None:
    times = torch.arange(1, T + 1, dtype=torch.float64) / T
    beta = schedule_betas(SCHEDULES[name](T), T)
    alpha_bar = torch.cumprod(1 - beta, 0)
    inner = slice(1, T - 1)  # the last β is capped, the first has no step before it
    now, then = levels(name, times[1:]), levels(name, times[:-1])
    z_weight, z0_weight, noise_weight = (c.flatten()[: T - 2] for c in coefficients(now, then))
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
            z_weight, z0_weight, noise_weight = coefficients(now, then, ddim(eta))
            assert torch.allclose(z_weight * signal + z0_weight, then.alpha)
            assert torch.allclose(z_weight**2 * variance + noise_weight**2, then.sigma**2)
        signal, variance = then.alpha, then.sigma**2


def test_the_step_works_position_by_position() -> None:
    times = torch.tensor([[0.9, 0.5, 0.7], [0.4, 0.3, 0.2]], dtype=torch.float64)
    whole = [SCHEDULES["sqrt"](T)(row, 1) for row in times]
    together = coefficients(whole[0], whole[1])
    for position in range(3):
        alone = [
            NoiseLevel(level.alpha[position], level.sigma[position], level.timestep[position])
            for level in whole
        ]
        for a, b in zip(together, coefficients(alone[0], alone[1]), strict=True):
            assert torch.equal(a[position], b)


def test_eta_one_is_ancestral_and_eta_zero_draws_nothing() -> None:
    level = levels("sqrt", torch.tensor([0.8, 0.5], dtype=torch.float64))
    now, then = (NoiseLevel(level.alpha[i], level.sigma[i], level.timestep[i]) for i in range(2))
    for a, b in zip(coefficients(now, then, ddim(1.0)), coefficients(now, then, ancestral), strict=True):
        assert torch.equal(a, b)
    assert coefficients(now, then, ddim(0.0))[2].item() == 0


@pytest.mark.parametrize("preserving", [False, True])
def test_a_rescaled_schedule_walks_with_its_own_posterior(preserving: bool) -> None:
    """Rescaled levels are those of noise F·ε: the posterior of z_s given z_t and z₀ by Bayes' rule."""
    schedule = Rescaled(SCHEDULES["sqrt"](T), 4.0)
    level = (VariancePreserving(schedule) if preserving else schedule)(torch.tensor([0.7, 0.4]), 1)
    (a_t, a_s), (s_t, s_s) = level.alpha.flatten(), level.sigma.flatten()
    covariance = torch.stack(
        [torch.stack([s_s**2, a_t / a_s * s_s**2]), torch.stack([a_t / a_s * s_s**2, s_t**2])]
    )
    gain = covariance[0, 1] / covariance[1, 1]
    now, then = (NoiseLevel(level.alpha[i], level.sigma[i], level.timestep[i]) for i in range(2))
    z_weight, z0_weight, noise_weight = coefficients(now, then)
    assert torch.allclose(z_weight.squeeze(), gain)
    assert torch.allclose(z0_weight.squeeze(), a_s - gain * a_t)
    assert torch.allclose(noise_weight.squeeze() ** 2, covariance[0, 0] - gain * covariance[0, 1])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", SCHEDULES)
def test_any_number_of_steps_has_finite_factors_that_keep_the_marginals(name: str, order: int) -> None:
    """With 12,000 steps several of sqrt's first times are pure noise, and z must stay a standard normal."""
    table = compute_step_table(levels(name, strided_times(12_000, num_timesteps=T)), order=order).table[
        ..., 0
    ]  # (K, 7)
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
    """Knows the answer; remembers what it was asked."""

    def __init__(self, answer: Tensor, embedding: TokenEmbedding) -> None:
        super().__init__()
        self.answer, self.embedding = answer, embedding
        self.asked: list[tuple[float, Tensor, Tensor | None]] = []

    def encode(self, source: Source) -> EncoderOutput:
        raise AssertionError("the walk reads no source")

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        self.asked.append((level.timestep.item(), z, self_condition))
        return Estimate(self.answer, self.answer)


def held_of(answer: Tensor, frozen: int = 0) -> Constraint:
    mask = torch.zeros(answer.shape[:2], dtype=torch.bool)
    mask[:, :frozen] = True
    return Constraint(torch.full_like(answer, 7.0), mask, torch.zeros_like(mask))


NOBODY = EncoderOutput(*(torch.empty(0) for _ in range(4)))


@pytest.fixture
def embedding() -> TokenEmbedding:
    torch.manual_seed(0)
    return TokenEmbedding(11, 6)


def test_a_walk_tells_the_clock_one_step_less_and_ends_near_the_answer(embedding: TokenEmbedding) -> None:
    answer = torch.randn(3, 5, 6)
    oracle = Oracle(answer, embedding)
    states = list(
        sample(
            oracle,
            SCHEDULES["sqrt"](T),
            NOBODY,
            held_of(answer),
            make_key(0, torch.arange(3)),
            strided_times(40, num_timesteps=T),
        )
    )
    assert [timestep for timestep, _, _ in oracle.asked] == pytest.approx([s.time - 1 / T for s in states])
    assert (states[-1].z - answer).abs().mean() < 0.2
    assert (states[0].z - answer).abs().mean() > 0.5


@pytest.mark.parametrize("drawn", [1, 3 * 5 * 6 * 4, 10**6])
def test_noise_is_a_steps_own_however_many_steps_it_is_drawn_for(
    embedding: TokenEmbedding, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noise2text.diffusion.sampler.NOISE_BUFFER", drawn)
    keys, answer, times = (
        make_key(0, torch.arange(3)),
        torch.zeros(3, 5, 6),
        strided_times(10, num_timesteps=T),
    )
    levels = SCHEDULES["sqrt"](T)(times, 1)
    rows = compute_step_table(levels).table[:, 3:, 0]  # the factors of z, ẑ₀, the estimate before and noise
    z = torch.zeros_like(answer)
    states = sample(Oracle(answer, embedding), SCHEDULES["sqrt"](T), NOBODY, held_of(answer), keys, times)
    for number, (state, (z_weight, _, _, noise_weight)) in enumerate(zip(states, rows, strict=True)):
        z = z_weight * z + noise_weight * gaussian_noise(keys, number, 5, 6)
        torch.testing.assert_close(state.z, z)
        z = state.z


def test_the_guess_is_the_previous_estimate(embedding: TokenEmbedding) -> None:
    answer = torch.randn(1, 2, 6)
    oracle = Oracle(answer, embedding)
    list(
        sample(
            oracle,
            SCHEDULES["sqrt"](T),
            NOBODY,
            held_of(answer),
            make_key(0, torch.arange(1)),
            strided_times(3, num_timesteps=T),
        )
    )
    guesses = [self_condition for _, _, self_condition in oracle.asked if self_condition is not None]
    assert len(guesses) == 3
    assert not guesses[0].any()
    assert all(torch.equal(self_condition, answer) for self_condition in guesses[1:])


def test_frozen_positions_stay_put_at_every_step(embedding: TokenEmbedding) -> None:
    answer = torch.randn(2, 4, 6)
    oracle = Oracle(answer, embedding)
    constraint = held_of(answer, frozen=2)
    for state in sample(
        oracle,
        SCHEDULES["sqrt"](T),
        NOBODY,
        constraint,
        make_key(0, torch.arange(2)),
        strided_times(5, num_timesteps=T),
    ):
        assert (state.z[:, :2] == 7).all()
        assert (state.estimate.z0[:, :2] == 7).all()
        assert not (state.z[:, 2:] == 7).any()


def test_clamping_gives_embeddings(embedding: TokenEmbedding) -> None:
    answer = torch.randn(2, 4, 6)
    clamped = ClampedDenoiser(Oracle(answer, embedding))
    times = strided_times(2, num_timesteps=T)
    for state in sample(
        clamped, SCHEDULES["sqrt"](T), NOBODY, held_of(answer), make_key(0, torch.arange(2)), times
    ):
        distances = torch.cdist(state.estimate.z0.flatten(0, 1), embedding.vectors)
        assert distances.min(1).values.max() < 1e-5
        assert torch.equal(
            distances.argmin(1).view(2, 4),
            torch.cdist(answer.flatten(0, 1), embedding.vectors).argmin(1).view(2, 4),
        )
