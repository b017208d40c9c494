"""The left is never noisier than the right; all begin as noise and end clean."""

from __future__ import annotations

import pytest
import torch

from noise2text.diffusion.schedules import SqrtSchedule
from noise2text.diffusion.solvers import step_coefficients, strided_times
from noise2text.diffusion.token_speed_schedule import TokenSpeeds
from noise2text.nn.denoiser import NoiseLevel

TIMES = torch.linspace(0, 1, 1001, dtype=torch.float64)


@pytest.mark.parametrize("positions", [1, 5, 64])
@pytest.mark.parametrize("anchor_distance", [1.0, 2.0, 5.0])
def test_the_left_is_never_noisier_and_no_position_goes_back(positions: int, anchor_distance: float) -> None:
    position_times = TokenSpeeds(
        SqrtSchedule(200), positions, anchor_distance=anchor_distance
    ).position_times(TIMES)  # (times, positions)
    assert (position_times.diff(dim=1) >= 0).all()
    assert (position_times.diff(dim=0) >= -1e-12).all()
    assert (position_times[0] == 0).all(), "all clean at 0"
    assert torch.allclose(position_times[-1], torch.ones(positions, dtype=torch.float64)), "all noise at 1"


def test_a_positions_time_is_the_line_to_the_anchor_by_hand() -> None:
    """N = 4, T = 8. At s = 8 the line goes from (0, 4) to (8, 8): heights 4, 4.5, 5, 5.5.

    At s = 2 it starts at (2, 0) with a slope of 8/6: the fourth position is at 4/3, the others have ended,
    at the schedule's first step.
    """
    position_times = TokenSpeeds(SqrtSchedule(8), 4).position_times(
        torch.tensor([8.0, 2.0], dtype=torch.float64) / 12
    )
    assert torch.allclose(position_times[0] * 8, torch.tensor([4.0, 4.5, 5.0, 5.5], dtype=torch.float64))
    assert torch.allclose(position_times[1] * 8, torch.tensor([1.0, 1.0, 1.0, 4 / 3], dtype=torch.float64))


def test_a_far_anchor_is_one_speed_for_all() -> None:
    position_times = TokenSpeeds(SqrtSchedule(2000), 8, anchor_distance=1e6).position_times(TIMES)
    assert (position_times[:, -1] - position_times[:, 0]).max() < 0.01


def test_the_level_is_the_schedules_at_each_positions_time_and_the_network_is_told_it() -> None:
    schedule = TokenSpeeds(SqrtSchedule(200), 6)
    level: NoiseLevel = schedule(torch.tensor([0.4], dtype=torch.float64), 5)
    position_times = schedule.position_times(torch.tensor([0.4]))[0, :5]
    alone = SqrtSchedule(200)(position_times, 1)
    assert torch.allclose(level.alpha[0, :, 0], alone.alpha.flatten())
    assert torch.allclose(level.sigma[0, :, 0], alone.sigma.flatten())
    assert torch.allclose(level.timestep[0], alone.timestep.flatten())


def test_every_step_of_a_walk_is_finite_and_leaves_settled_positions_alone() -> None:
    schedule = TokenSpeeds(SqrtSchedule(2000), 64)
    level: NoiseLevel = schedule(strided_times(20, num_timesteps=2000), 64)
    now = NoiseLevel(level.alpha[:-1], level.sigma[:-1], level.timestep[:-1])
    then = NoiseLevel(level.alpha[1:], level.sigma[1:], level.timestep[1:])
    tables = step_coefficients(now, then)
    assert all(torch.isfinite(table).all() for table in tables)
    settled = (now.sigma == then.sigma).expand_as(tables[0])
    assert torch.allclose(tables[0][settled], torch.ones((), dtype=torch.float64))
