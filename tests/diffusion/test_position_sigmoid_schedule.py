"""The sigmoid schedule: noise grows at each position, from the last to the first, between clean and noise."""

from __future__ import annotations

from statistics import NormalDist

import pytest
import torch

from noise2text.diffusion.position_sigmoid_schedule import MIN_VARIANCE, PositionSigmoid
from noise2text.diffusion.solvers import step_coefficients
from noise2text.nn.denoiser import NoiseLevel

FIRST, M = 5, 64
SCHEDULE = PositionSigmoid(2000, target_start=FIRST, positions=M)
TIMES = torch.linspace(0, 1, 2001, dtype=torch.float64)


def test_it_is_the_normal_distribution_of_python_above_the_cut_off() -> None:
    """Eq. 3.3 with its time flipped: Φ((1 − t − μ_k)/σ), σ = 1/(M + 5), μ_k = (3 + k)σ."""
    for k in (1, 20, M):
        normal = NormalDist((3 + k) / (M + 5), 1 / (M + 5))
        expected = torch.tensor([normal.cdf(1 - t) for t in TIMES.tolist()], dtype=torch.float64)
        above = 1 - expected > MIN_VARIANCE
        assert above.sum() > 100
        torch.testing.assert_close(
            SCHEDULE.alpha_bar(TIMES)[above, k - 1], expected[above], atol=1e-9, rtol=0
        )


def test_noise_grows_with_time_at_every_position() -> None:
    variance = 1 - SCHEDULE.alpha_bar(TIMES)
    assert (variance.diff(dim=0) >= 0).all()
    busy = (variance[:-1] > 1e-9) & (variance[1:] < 1 - 1e-9)
    assert (variance.diff(dim=0)[busy] > 0).all()


def test_the_last_token_is_noised_first() -> None:
    """Fig. 3.2: at any time the noise never falls from left to right, and turns come from the right."""
    variance = 1 - SCHEDULE.alpha_bar(TIMES)
    assert (variance.diff(dim=1) >= -1e-12).all()
    half = (variance > 0.5).int().argmax(0)  # the first time that is more than half noise
    assert (half.diff() < 0).all()
    expected = [1 - (3 + k) / (M + 5) for k in (1, M)]
    assert [half[0] / 2000, half[-1] / 2000] == pytest.approx(expected, abs=1e-3)


def test_it_runs_from_clean_to_noise() -> None:
    start, end = 1 - SCHEDULE.alpha_bar(TIMES[[0, -1]])
    assert (start[:-1] == 0).all()
    assert start[-1].item() == pytest.approx(NormalDist().cdf(-2))  # 2.3 %: above the cut-off
    assert (1 - end).max().item() == pytest.approx(NormalDist().cdf(-4))  # 3·10⁻⁵ of the signal's square


def test_below_the_cut_off_the_variance_falls_on_a_line_to_nothing() -> None:
    variance = 1 - SCHEDULE.alpha_bar(TIMES)
    for k in (0, 30, M - 2):
        low = variance[:, k] < MIN_VARIANCE
        line = variance[low, k] / TIMES[low]
        assert torch.allclose(line[1:], line[1].expand_as(line[1:]))
        after = variance[~low, k][0].item()
        assert MIN_VARIANCE <= after < MIN_VARIANCE + 0.02  # no jump where the line ends


def test_a_place_before_the_target_has_the_first_level_and_the_clock_is_the_time() -> None:
    level: NoiseLevel = SCHEDULE(TIMES[1:], FIRST + M)
    assert level.alpha.shape == (2000, FIRST + M, 1)
    assert torch.equal(level.alpha[:, : FIRST + 1], level.alpha[:, FIRST, None].expand(-1, FIRST + 1, -1))
    assert torch.allclose(level.alpha**2 + level.sigma**2, torch.ones(()).double())
    assert torch.allclose(level.timestep[:, 0], TIMES[:-1])


@pytest.mark.parametrize("positions", [1, 11, 64, 512])
def test_every_step_is_finite_and_keeps_the_variance(positions: int) -> None:
    """Far from its turn a position stays the noise that it is."""
    times = torch.linspace(1, 1 / 2000, 50, dtype=torch.float64)
    level: NoiseLevel = PositionSigmoid(2000, target_start=0, positions=positions)(times, positions)
    now = NoiseLevel(level.alpha[:-1], level.sigma[:-1], level.timestep[:-1])
    then = NoiseLevel(level.alpha[1:], level.sigma[1:], level.timestep[1:])
    z_weight, z0_weight, noise_weight = step_coefficients(now, then)
    assert all(factor.isfinite().all() for factor in (z_weight, z0_weight, noise_weight))
    assert torch.allclose(z_weight * now.alpha + z0_weight, then.alpha)
    assert torch.allclose(z_weight**2 * now.sigma**2 + noise_weight**2, then.sigma**2)


def test_what_docs_say_of_64_positions() -> None:
    """Few positions are in their turn, and score matching's 1/σ² stands where there is nothing to learn."""
    variance = 1 - SCHEDULE.alpha_bar(TIMES[1:])
    assert ((variance > 0.02) & (variance < 0.98)).double().mean().item() == pytest.approx(0.06, abs=0.001)
    weight = 1 / variance
    assert (weight[variance <= MIN_VARIANCE].sum() / weight.sum()).item() == pytest.approx(0.995, abs=0.001)
    assert weight.max().item() == pytest.approx(91_000, rel=0.01)
