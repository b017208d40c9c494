"""Every rate warms up to 1 at the end of the warm-up, then falls its own way."""

import math
from itertools import pairwise

import pytest

from noise2text.training.lr_schedules import LR_SCHEDULES


@pytest.mark.parametrize("name", LR_SCHEDULES)
def test_a_rate_rises_on_a_line_to_one(name: str) -> None:
    schedule = LR_SCHEDULES[name](10, 100)
    assert [schedule(step) for step in (1, 5, 10)] == pytest.approx([0.1, 0.5, 1.0])


@pytest.mark.parametrize("name", LR_SCHEDULES)
def test_a_rate_never_rises_after_the_warm_up_and_is_never_negative(name: str) -> None:
    schedule = LR_SCHEDULES[name](10, 100)
    values = [schedule(step) for step in range(10, 130)]
    assert all(a >= b >= 0 for a, b in pairwise(values))


def test_known_values() -> None:
    assert LR_SCHEDULES["inverse-sqrt"](10, 100)(40) == pytest.approx(0.5)
    assert LR_SCHEDULES["linear"](10, 110)(60) == pytest.approx(0.5)
    assert LR_SCHEDULES["linear"](10, 110)(110) == 0
    assert LR_SCHEDULES["cosine"](0, 100)(50) == pytest.approx(0.5)
    assert LR_SCHEDULES["cosine"](10, 110)(110) == pytest.approx(0, abs=1e-12)
    assert LR_SCHEDULES["constant"](10, 100)(100) == 1


@pytest.mark.parametrize("name", LR_SCHEDULES)
def test_no_warm_up_is_allowed(name: str) -> None:
    assert math.isfinite(LR_SCHEDULES[name](0, 10)(1))
