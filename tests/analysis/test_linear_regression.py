"""Lines, their tests and bands against scipy, statistics by hand, and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from noise2text.analysis.linear_regression import critical_t, fit_line
from noise2text.core.errors import Problem

NUMBERS = st.floats(-100, 100).map(lambda value: round(value, 3))
POINTS = st.lists(st.tuples(st.integers(0, 60), NUMBERS), min_size=3, max_size=30).filter(
    lambda points: len({x for x, _ in points}) > 1
)


def test_three_points_by_hand() -> None:
    """(0, 0), (1, 1), (2, 1): S_xx = 2, S_xy = 1; errors −1/6, 1/3, −1/6; s² = 1/6; t = ½ / √(1/12) = √3."""
    line = fit_line([0, 1, 2], [0, 1, 1])
    assert line.slope == pytest.approx(1 / 2)
    assert line.intercept == pytest.approx(1 / 6)
    assert line.residual_std**2 == pytest.approx(1 / 6)
    assert line.t == pytest.approx(math.sqrt(3))
    assert line.p == pytest.approx(1 / 3)  # with one degree of freedom t is Cauchy's: 1 − 2·atan(√3)/π
    assert line.predict([0, 4]) == pytest.approx([1 / 6, 13 / 6])
    half = math.tan(math.pi * 0.9 / 2)  # its quantile
    assert line.confidence_band([1, 3], confidence=0.9) == pytest.approx(
        [half * math.sqrt(1 / 6 * 1 / 3), half * math.sqrt(1 / 6 * (1 / 3 + 2))]
    )


@given(POINTS)
def test_a_line_is_scipys(points: list[tuple[int, float]]) -> None:
    x, y = zip(*points, strict=True)
    assume(len(set(y)) > 1)  # of a flat line scipy has no error
    ours, theirs = fit_line(x, y), stats.linregress(x, y)
    scale = max(1.0, *map(abs, y))
    assert ours.slope == pytest.approx(theirs.slope, abs=1e-9 * scale)
    assert ours.intercept == pytest.approx(theirs.intercept, abs=1e-8 * scale)
    assert ours.slope_error == pytest.approx(theirs.stderr, rel=1e-5, abs=1e-6 * scale)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-5, abs=1e-7)


@given(POINTS)
def test_turned_around_everything_changes_its_sign(points: list[tuple[int, float]]) -> None:
    x, y = np.asarray(points).T
    up, down = fit_line(x, y), fit_line(x, -y)
    assert (down.slope, down.t, down.p) == pytest.approx((-up.slope, -up.t, up.p))


@pytest.mark.parametrize("height", [0.0, 3.0, 0.1, 0.7])
def test_a_flat_line_proves_nothing_and_a_perfect_one_everything(height: float) -> None:
    flat = fit_line([1, 2, 3, 4], [height] * 4)
    assert (flat.slope, flat.t, flat.p) == pytest.approx((0, 0, 1), abs=1e-9)
    assert flat.confidence_band([1, 9], confidence=0.99) == pytest.approx([0, 0], abs=1e-9)
    steep = fit_line([1, 2, 3, 4], [2, 4, 6, 8])
    assert math.isfinite(steep.t)
    assert steep.p < 1e-9


def test_the_band_is_widest_far_from_the_middle() -> None:
    line = fit_line([1, 2, 3, 6], [0, 1, 0, 2])
    near, far, farther = line.confidence_band([3, 6, 9], confidence=0.99)
    assert near < far < farther
    assert line.confidence_band([2], confidence=0.99) > line.confidence_band([2], confidence=0.9)


def test_the_band_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    x = np.arange(12)
    fits = [fit_line(x, 1 + 0.5 * x + rng.normal(size=12)) for _ in range(2000)]
    inside = [
        abs(line.predict([9]) - 5.5)[0] <= line.confidence_band([9], confidence=0.9)[0] for line in fits
    ]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.02)


def test_the_critical_value_is_the_thesiss() -> None:
    assert critical_t(1987, 0.99) == pytest.approx(2.58, abs=0.005)
    assert critical_t(1987, 0.99) == pytest.approx(stats.t(1985).ppf(0.995))


@pytest.mark.parametrize(("x", "words"), [([1, 2], "3 points"), ([4, 4, 4], "same x")])
def test_what_has_no_slope_is_refused(x: list[int], words: str) -> None:
    with pytest.raises(Problem, match=words):
        fit_line(x, [1.0] * len(x))
