"""No training time has less noise than the clip; the clip follows the embeddings."""

from __future__ import annotations

import pytest
import torch
from scipy.spatial import KDTree

from noise2text.diffusion.noise_clipping import (
    ClippedTimes,
    ExaggeratedNoise,
    neighbor_distance,
)
from noise2text.diffusion.schedules import AlphaBarSchedule, QuadraticSchedule, SqrtSchedule
from noise2text.nn.denoiser import NoiseLevel


def embeddings(vocab: int = 50, dim: int = 6) -> torch.Tensor:
    return torch.randn(vocab, dim, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("vocab", [50, 6000])  # the pairs of 6,000 words are compared in several blocks
def test_the_nearest_neighbors_distance_is_that_of_a_tree_search(vocab: int) -> None:
    rows = embeddings(vocab)
    distances = KDTree(rows.double()).query(rows.double(), k=2)[0][:, 1]  # the nearest is the row itself
    assert neighbor_distance(rows).item() == pytest.approx((distances**2).mean())


def test_in_the_quadratic_schedule_time_is_the_noises_deviation() -> None:
    t = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    level: NoiseLevel = QuadraticSchedule(100)(t, 1)
    assert torch.allclose(level.sigma.flatten(), t)


@pytest.mark.parametrize("schedule", [QuadraticSchedule(2000), SqrtSchedule(2000)])
@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_no_training_level_lies_below_the_clip(schedule: AlphaBarSchedule, margin: float) -> None:
    times, rows = ClippedTimes(schedule, margin=margin), embeddings()
    times.clip(rows)
    t, weight = times(torch.linspace(0, 1 - 1e-9, 20_001, dtype=torch.float64))
    ratio = 1 / schedule(t, 1).snr.flatten()
    least = neighbor_distance(rows) / 6 + margin
    assert (ratio >= least).all()
    assert ratio.min() < 1.01 * least, "the clip is no higher than it must be"
    assert t.max() == 1
    assert (weight == 1).all()


def test_the_times_that_are_left_are_equally_likely() -> None:
    times = ClippedTimes(QuadraticSchedule(10))
    times.first_time_index.fill_(7)
    t, _ = times((torch.arange(400, dtype=torch.float64) + 0.5) / 400)
    assert torch.equal((t * 10).round().long().bincount(), torch.tensor([0] * 7 + [100] * 4))


def test_the_clip_moves_with_the_embeddings_and_is_state() -> None:
    times = ClippedTimes(QuadraticSchedule(2000))
    assert times(torch.zeros(1, dtype=torch.float64))[0].item() == 1 / 2000, "unclipped at first"
    lows = []
    for size in (0.1, 1.0, 100.0):
        times.clip(size * embeddings())
        lows.append(times(torch.zeros(1, dtype=torch.float64))[0].item())
    assert lows[0] < lows[1] < lows[2] <= 1
    again = ClippedTimes(QuadraticSchedule(2000))
    again.load_state_dict(times.state_dict())
    assert torch.equal(again.first_time_index, times.first_time_index)


def test_a_fixed_clock_changes_what_is_told_and_nothing_else() -> None:
    schedule, t = QuadraticSchedule(1000), torch.tensor([0.001, 0.5, 1.0])
    exaggerated, true = ExaggeratedNoise(schedule, 0.9)(t, 3), schedule(t, 3)
    assert torch.equal(exaggerated.alpha, true.alpha)
    assert torch.equal(exaggerated.sigma, true.sigma)
    assert ((exaggerated.timestep >= 0.9) & (exaggerated.timestep < 1)).all()
    assert torch.equal(ExaggeratedNoise(schedule, 0.0)(t, 3).timestep, true.timestep)
    assert (ExaggeratedNoise(schedule, 1.0)(t, 3).timestep == 1).all()
