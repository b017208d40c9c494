"""Schedules: clean at time 0, ever noisier, and the papers' T-step numbers."""

import math

import pytest
import torch
from torch import Tensor, nn

from noise2text.diffusion.schedules import (
    SCHEDULES,
    AlphaBarSchedule,
    CosineSchedule,
    LinearSchedule,
    Rescaled,
    SqrtSchedule,
    VariancePreserving,
    schedule_betas,
)

ALL = [make() for make in SCHEDULES.values()]
FACTORS = [1.0, 2.5, 4.0, 41.0]


def times(steps: int) -> Tensor:
    return torch.linspace(0, 1, steps + 1, dtype=torch.float64)


def name_of(schedule: nn.Module) -> str:
    return type(schedule).__name__.lower()


@pytest.mark.parametrize("schedule", ALL, ids=name_of)
def test_time_zero_is_clean(schedule: AlphaBarSchedule) -> None:
    level = schedule(torch.zeros(4096), 1)  # many, so that vectorised arithmetic is met too
    assert (level.alpha == 1).all()
    assert (level.sigma == 0).all()


@pytest.mark.parametrize("schedule", ALL, ids=name_of)
def test_time_one_is_almost_only_noise(schedule: AlphaBarSchedule) -> None:
    level = schedule(torch.ones(1), 1)
    assert 0 <= level.alpha < 0.01
    assert level.sigma > 0.9999


@pytest.mark.parametrize("schedule", ALL, ids=name_of)
def test_signal_falls_and_noise_rises(schedule: AlphaBarSchedule) -> None:
    level = schedule(times(2000), 1)
    assert (level.alpha.flatten().diff() < 0).all()
    assert (level.sigma.flatten().diff() >= 0).all()
    assert (level.sigma.flatten()[:1900].diff() > 0).all()  # before it rounds to 1


@pytest.mark.parametrize("schedule", ALL, ids=name_of)
def test_variance_is_preserved_without_rescaling(schedule: AlphaBarSchedule) -> None:
    level = schedule(times(500), 1)
    torch.testing.assert_close(level.alpha**2 + level.sigma**2, torch.ones_like(level.alpha))


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("schedule", ALL, ids=name_of)
def test_rescaling_divides_the_signal_to_noise_ratio_by_the_factor_squared(
    schedule: AlphaBarSchedule, factor: float
) -> None:
    t = times(500)[1:]
    plain = Rescaled(schedule, factor)
    for rescaled in (plain(t, 1), VariancePreserving(plain)(t, 1)):
        torch.testing.assert_close(rescaled.snr, schedule(t, 1).snr / factor**2, rtol=1e-12, atol=0)
        assert (rescaled.snr.flatten().diff() < 0).all()


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("schedule", ALL, ids=name_of)
def test_plain_rescaling_keeps_the_signal(schedule: AlphaBarSchedule, factor: float) -> None:
    level, rescaled = schedule(times(500), 1), Rescaled(schedule, factor)(times(500), 1)
    assert torch.equal(rescaled.alpha, level.alpha)
    assert torch.equal(rescaled.timestep, level.timestep)
    torch.testing.assert_close(rescaled.sigma**2, factor**2 * level.sigma**2)  # eq. 3


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("schedule", ALL, ids=name_of)
def test_preserving_rescaling_is_equation_8(schedule: AlphaBarSchedule, factor: float) -> None:
    t = times(500)
    alpha_bar = schedule.alpha_bar(t)
    level = VariancePreserving(Rescaled(schedule, factor))(t, 1)
    torch.testing.assert_close(level.alpha**2 + level.sigma**2, torch.ones_like(level.alpha))
    expected = alpha_bar / (alpha_bar + factor**2 * (1 - alpha_bar))
    torch.testing.assert_close((level.alpha**2).flatten(), expected)
    assert (level.alpha.flatten().diff() < 0).all()


def test_sqrt_has_the_published_first_step() -> None:
    beta, alpha_bar = (
        schedule_betas(SqrtSchedule(), 2000)[0].item(),
        SqrtSchedule().alpha_bar(torch.tensor([1 / 2000]).double()).item(),
    )
    assert beta == pytest.approx(0.01464, abs=5e-6)
    assert alpha_bar == pytest.approx(0.9854, abs=5e-5)
    assert math.sqrt(1 - alpha_bar) == pytest.approx(0.1210, abs=5e-5)


@pytest.mark.parametrize("steps", [9_999, 10_000, 20_000])
def test_however_many_steps_each_has_its_noise(steps: int) -> None:
    """From 10,000 on sqrt has no signal left before its last step."""
    noise = schedule_betas(SqrtSchedule(), steps)
    assert ((noise > 0) & (noise <= 0.999)).all()


@pytest.mark.parametrize(("steps", "close"), [(1000, 0.015), (2000, 0.01), (4000, 0.005)])
def test_linear_is_ddpms_in_the_limit(steps: int, close: float) -> None:
    ddpm = torch.linspace(1e-4 * 1000 / steps, 0.02 * 1000 / steps, steps, dtype=torch.float64)
    ours = schedule_betas(LinearSchedule(), steps)
    torch.testing.assert_close(ours[steps // 20 :], ddpm[steps // 20 :], rtol=close, atol=0)
    torch.testing.assert_close(
        ours, ddpm, rtol=0.1, atol=0
    )  # half a step of time apart, which counts at the start
    signal = (1 - ddpm).cumprod(0).sqrt()
    torch.testing.assert_close(LinearSchedule().alpha_bar(times(steps)[1:]).sqrt(), signal, rtol=0, atol=1e-3)


@pytest.mark.parametrize("steps", [1000, 2000])
def test_cosine_is_nichol_and_dhariwals(steps: int) -> None:
    def f(i: int) -> float:
        return math.cos((i / steps + 0.008) / 1.008 * math.pi / 2) ** 2

    published = [min(1 - f(i + 1) / f(i), 0.999) for i in range(steps)]
    torch.testing.assert_close(
        schedule_betas(CosineSchedule(), steps), torch.tensor(published, dtype=torch.float64)
    )


@pytest.mark.parametrize("steps", [10, 1000, 2000])
@pytest.mark.parametrize("schedule", ALL, ids=name_of)
def test_steps_multiply_to_the_curve(schedule: AlphaBarSchedule, steps: int) -> None:
    beta = schedule_betas(schedule, steps)
    assert ((beta > 0) & (beta <= 0.999)).all()
    free = beta < 0.999
    assert free[:-1].all()  # only the last may be capped
    product = (1 - beta).cumprod(0)
    torch.testing.assert_close(
        product[free], schedule.alpha_bar(times(steps)[1:])[free], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("steps", [20, 2000])
@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_the_network_is_given_the_papers_index(make: type[AlphaBarSchedule], steps: int) -> None:
    index = torch.arange(1, steps + 1, dtype=torch.float64)
    timestep = make(steps)(index / steps, 1).timestep
    torch.testing.assert_close(timestep, ((index - 1) / steps)[:, None])
    assert make(steps)(torch.zeros(1), 1).timestep == 0


def test_level_has_a_row_for_each_time() -> None:
    level = SqrtSchedule()(torch.rand(3, generator=torch.Generator().manual_seed(0)), 7)
    assert level.alpha.shape == level.sigma.shape == (3, 1, 1)
    assert level.timestep.shape == (3, 1)
    assert level.alpha.dtype == torch.float64  # the coefficients of a step need it
