"""The three losses are one KL divergence, and the posterior is Bayes' rule."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from noise2text.diffusion.schedules import SCHEDULES, Rescaled, Schedule, SqrtSchedule
from noise2text.diffusion.variational_bound import kl_weight_of_z0
from noise2text.nn.denoiser import NoiseLevel
from noise2text.recipes.flow import RectifiedFlow

from .posterior import kl_weight_of_mean, kl_weight_of_noise, posterior


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


CHAINS: dict[str, Schedule] = {name: schedule() for name, schedule in SCHEDULES.items()} | {
    "rescaled": Rescaled(SqrtSchedule(), 3.0),
    "flow": RectifiedFlow(noise_factor=2.0),
}


def steps_of(name: str, steps: int, first: int = 1, last: int = 0) -> tuple[NoiseLevel, NoiseLevel]:
    """The levels that steps come from and lead to, from the `first` time of the chain to the `last`."""
    times = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[first : last or steps]
    level: NoiseLevel = CHAINS[name](times, 1)
    alpha, sigma = level.alpha[:, 0], level.sigma[:, 0]  # (K, 1)
    return (
        NoiseLevel(alpha[1:], sigma[1:], level.timestep[1:]),
        NoiseLevel(alpha[:-1], sigma[:-1], level.timestep[:-1]),
    )


@pytest.mark.parametrize("name", CHAINS)
def test_posterior_is_bayes_rule(name: str) -> None:
    now, then = steps_of(name, 50, 20, 22)
    z0, previous_z, z_t = numbers(3, 8), numbers(3, 8, seed=1), numbers(3, 8, seed=2)
    ratio = now.alpha / then.alpha
    added = (now.sigma**2 - (ratio * then.sigma) ** 2).sqrt()
    likelihood = Normal(ratio * previous_z, added).log_prob(z_t)
    prior = Normal(then.alpha * z0, then.sigma).log_prob(previous_z)
    evidence = Normal(now.alpha * z0, now.sigma).log_prob(z_t)
    mean, variance = posterior(now, then, z_t, z0)
    torch.testing.assert_close(
        Normal(mean, variance.sqrt()).log_prob(previous_z),
        likelihood + prior - evidence,
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("steps", [20, 2000])
@pytest.mark.parametrize("name", CHAINS)
def test_mean_z0_and_noise_losses_are_one_bound(name: str, steps: int) -> None:
    now, then = steps_of(name, steps)  # from t = 1/T to 1 − 1/T: at 1 the signal may be gone
    count = len(now.alpha)
    z0, guess, noise = numbers(count, 8), numbers(count, 8, seed=1), numbers(count, 8, seed=2)
    z_t = now.alpha * z0 + now.sigma * noise
    noise_guess = (z_t - now.alpha * guess) / now.sigma
    mean, variance = posterior(now, then, z_t, z0)
    mean_guess, _ = posterior(now, then, z_t, guess)
    deviation = variance.sqrt()
    bound = kl_divergence(Normal(mean, deviation), Normal(mean_guess, deviation)).sum(1)
    for weight, error in (
        (kl_weight_of_mean, mean_guess - mean),
        (kl_weight_of_z0, guess - z0),
        (kl_weight_of_noise, noise_guess - noise),
    ):
        weighted = weight(now, then)[:, 0] * error.square().sum(1)
        torch.testing.assert_close(weighted, bound, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("steps", [2, 10, 20, 100, 1000, 2000, 5000])
@pytest.mark.parametrize("name", SCHEDULES)
def test_posterior_variance_is_at_most_what_was_there_and_what_was_added(name: str, steps: int) -> None:
    now, then = steps_of(name, steps, 0, steps + 1)
    _, variance = posterior(now, then, torch.zeros(1).double(), torch.zeros(1).double())
    assert (variance >= 0).all()
    assert (variance <= then.sigma**2 * (1 + 1e-12)).all()
    assert (variance <= (1 - (now.alpha / then.alpha) ** 2) + 1e-12).all()


def test_the_step_to_clean_data_is_certain() -> None:
    now, clean = steps_of("sqrt", 10, 0, 2)
    z0 = numbers(4)
    mean, variance = posterior(now, clean, numbers(4, seed=1), z0)
    torch.testing.assert_close(mean[0], z0)
    assert variance == 0
    assert (
        torch.stack(
            [kl_weight_of_mean(now, clean), kl_weight_of_z0(now, clean), kl_weight_of_noise(now, clean)]
        )
        .isinf()
        .all()
    )
