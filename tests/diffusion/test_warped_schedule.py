"""Warped time makes the loss a line; sampling along it is Euler's method on the probability flow."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from noise2text.diffusion.solvers import Ddim, step_coefficients
from noise2text.diffusion.warped_schedule import ExponentialSchedule, WarpedSchedule
from noise2text.nn.denoiser import NoiseLevel


def cross_entropy(alpha_bar: Tensor) -> Tensor:
    """A cross-entropy that rises around σ/α = 6, as one of tokens in noise does."""
    return 3 / (1 + torch.exp(-3 * (((1 - alpha_bar) / alpha_bar).sqrt().log() - np.log(6))))


def linearity(schedule: WarpedSchedule) -> float:
    """R² of the loss against time."""
    t = (torch.arange(schedule.num_timesteps, dtype=torch.float64) + 1) / schedule.num_timesteps
    loss = cross_entropy(schedule.alpha_bar(t)[:, 0])
    return float(np.corrcoef(t, loss)[0, 1] ** 2)


def show(schedule: WarpedSchedule) -> None:
    """Three positions a row, of which the last is padding with a loss that must not count."""
    t = (torch.arange(schedule.num_timesteps, dtype=torch.float64) + 1) / schedule.num_timesteps
    loss = cross_entropy(schedule.alpha_bar(t))  # (T, 1)
    losses = torch.cat([loss - 0.5, loss + 0.5, torch.full_like(loss, 1e9)], 1)
    schedule.observe(t, losses, torch.tensor([True, True, False]).expand(len(t), 3))


def test_it_begins_even_in_log_noise_between_its_ends() -> None:
    level: NoiseLevel = ExponentialSchedule(100, sigma_min=0.5, sigma_max=50.0)(
        torch.linspace(0, 1, 3, dtype=torch.float64), 4
    )
    ratio = (level.sigma / level.alpha).flatten()
    assert torch.allclose(ratio, torch.tensor([0.5, 5.0, 50.0], dtype=torch.float64))
    assert torch.allclose(level.alpha**2 + level.sigma**2, torch.ones(3, 1, 1, dtype=torch.float64))


def test_warped_time_makes_the_loss_a_line_and_keeps_the_ends() -> None:
    schedule = WarpedSchedule(
        ExponentialSchedule(2000, sigma_min=0.2, sigma_max=100.0), bin_size=20, min_count=1
    )
    before, ends = linearity(schedule), schedule.alpha_bars[[1, -1]].clone()
    show(schedule)
    assert schedule.refit().all()
    assert before < 0.95
    assert linearity(schedule) > 0.999
    assert torch.equal(schedule.alpha_bars[[1, -1]], ends)
    assert (schedule.alpha_bars[1:].diff(dim=0) < 0).all()


def test_all_positions_share_a_level_and_the_network_is_given_warped_time() -> None:
    schedule = WarpedSchedule(ExponentialSchedule(200), bin_size=20, min_count=1)
    show(schedule)
    schedule.refit()
    level: NoiseLevel = schedule(torch.tensor([0.25, 1.0]), 7)
    assert level.alpha.shape == (2, 1, 1)
    assert torch.allclose(level.timestep, torch.tensor([[0.245], [0.995]]))


def test_a_row_of_padding_alone_is_no_loss() -> None:
    schedule = WarpedSchedule(ExponentialSchedule(200), bin_size=20, min_count=1)
    schedule.observe(torch.tensor([0.5]), torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.bool))
    assert schedule.counts.sum() == 0


def test_ddim_is_euler_on_the_probability_flow() -> None:
    """CDCD: dz = (z − ẑ₀)/σ̃ dσ̃ for z = z₀ + σ̃·ε; the canvas of sampling is that z times α."""
    levels: NoiseLevel = ExponentialSchedule(2000)(torch.tensor([0.8, 0.5], dtype=torch.float64), 1)
    now, then = (NoiseLevel(levels.alpha[i], levels.sigma[i], levels.timestep[i]) for i in range(2))
    sigma_max, sigma_min = ((level.sigma / level.alpha).item() for level in (now, then))
    z, clean = 40.0, 1.5
    euler = z + (sigma_min - sigma_max) * (z - clean) / sigma_max
    z_weight, z0_weight, noise_weight = (value.item() for value in step_coefficients(now, then, Ddim(0.0)))
    step = z_weight * (z * now.alpha.item()) + z0_weight * clean
    assert abs(step / then.alpha.item() - euler) < 1e-9
    assert noise_weight == 0
