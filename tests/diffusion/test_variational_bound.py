"""The three losses are one KL divergence, and the posterior is Bayes' rule."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from noise2text.diffusion.schedules import SCHEDULES
from noise2text.diffusion.variational_bound import (
    gaussian_kl,
    mean_weight,
    noise_weight,
    posterior,
    z0_weight,
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def alpha_bars(name: str, steps: int) -> Tensor:
    return SCHEDULES[name]().alpha_bar(torch.linspace(0, 1, steps + 1, dtype=torch.float64))


def test_kl_equals_torchs() -> None:
    mean1, mean2 = numbers(7, 5), numbers(7, 5, seed=1)
    variance1, variance2 = numbers(7, 5, seed=2).exp(), numbers(7, 5, seed=3).exp()
    ours = gaussian_kl(mean1, variance1, mean2, variance2)
    diagonal = kl_divergence(
        Independent(Normal(mean1, variance1.sqrt()), 1), Independent(Normal(mean2, variance2.sqrt()), 1)
    )
    full = kl_divergence(
        MultivariateNormal(mean1, variance1.diag_embed()), MultivariateNormal(mean2, variance2.diag_embed())
    )
    torch.testing.assert_close(ours, diagonal, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours, full, rtol=1e-12, atol=1e-12)


def test_kl_takes_one_variance_for_all_dimensions() -> None:
    mean1, mean2, variance1, variance2 = (
        numbers(4, 6),
        numbers(4, 6, seed=1),
        numbers(4, 1).exp(),
        numbers(1).exp(),
    )
    whole = torch.ones(4, 6, dtype=torch.float64)
    torch.testing.assert_close(
        gaussian_kl(mean1, variance1, mean2, variance2),
        gaussian_kl(mean1, variance1 * whole, mean2, variance2 * whole),
    )


def test_kl_of_a_distribution_with_itself_is_zero() -> None:
    mean, variance = numbers(3, 4), numbers(3, 4, seed=1).exp()
    assert gaussian_kl(mean, variance, mean, variance).abs().max() < 1e-15


@pytest.mark.parametrize("name", SCHEDULES)
def test_posterior_is_bayes_rule(name: str) -> None:
    previous, now = alpha_bars(name, 50)[[20, 21]]
    z0, previous_z, z_t = numbers(3, 8), numbers(3, 8, seed=1), numbers(3, 8, seed=2)
    alpha = now / previous
    likelihood = Normal(alpha.sqrt() * previous_z, (1 - alpha).sqrt()).log_prob(z_t)
    prior = Normal(previous.sqrt() * z0, (1 - previous).sqrt()).log_prob(previous_z)
    evidence = Normal(now.sqrt() * z0, (1 - now).sqrt()).log_prob(z_t)
    mean, variance = posterior(now, previous, z_t, z0)
    torch.testing.assert_close(
        Normal(mean, variance.sqrt()).log_prob(previous_z),
        likelihood + prior - evidence,
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("steps", [20, 2000])
@pytest.mark.parametrize("name", SCHEDULES)
def test_mean_z0_and_noise_losses_are_one_bound(name: str, steps: int) -> None:
    alpha_bar = alpha_bars(name, steps)[1:-1, None]
    previous, now = alpha_bar[:-1], alpha_bar[1:]  # t = 2 … T − 1: at T the signal may be gone
    z0, self_condition, noise = (
        numbers(len(now), 8),
        numbers(len(now), 8, seed=1),
        numbers(len(now), 8, seed=2),
    )
    z_t = now.sqrt() * z0 + (1 - now).sqrt() * noise
    noise_guess = (z_t - now.sqrt() * self_condition) / (1 - now).sqrt()
    mean, variance = posterior(now, previous, z_t, z0)
    mean_guess, _ = posterior(now, previous, z_t, self_condition)
    bound = gaussian_kl(mean, variance, mean_guess, variance)
    for weight, error in (
        (mean_weight, mean_guess - mean),
        (z0_weight, self_condition - z0),
        (noise_weight, noise_guess - noise),
    ):
        weighted = weight(now, previous)[:, 0] * error.square().sum(1)
        torch.testing.assert_close(weighted, bound, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
def test_z0_weight_is_half_the_fall_of_the_signal_to_noise_ratio(name: str) -> None:
    alpha_bar = alpha_bars(name, 100)[1:]
    snr = alpha_bar / (1 - alpha_bar)
    torch.testing.assert_close(z0_weight(alpha_bar[1:], alpha_bar[:-1]), (snr[:-1] - snr[1:]) / 2)


@pytest.mark.parametrize("steps", [2, 10, 20, 100, 1000, 2000, 5000])
@pytest.mark.parametrize("name", SCHEDULES)
def test_posterior_variance_is_at_most_what_was_there_and_what_was_added(name: str, steps: int) -> None:
    alpha_bar = alpha_bars(name, steps)
    previous, now = alpha_bar[:-1], alpha_bar[1:]
    _, variance = posterior(now, previous, torch.zeros(1).double(), torch.zeros(1).double())
    assert (variance >= 0).all()
    assert (variance <= (1 - previous) * (1 + 1e-12)).all()
    assert (variance <= (1 - now / previous) + 1e-12).all()


def test_the_step_to_clean_data_is_certain() -> None:
    now, clean = alpha_bars("sqrt", 10)[1], torch.ones((), dtype=torch.float64)
    z0 = numbers(4)
    mean, variance = posterior(now, clean, numbers(4, seed=1), z0)
    torch.testing.assert_close(mean, z0)
    assert variance == 0
    assert (
        torch.stack([mean_weight(now, clean), z0_weight(now, clean), noise_weight(now, clean)]).isinf().all()
    )
