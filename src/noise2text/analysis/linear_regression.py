"""A straight line through points, how sure its slope is, and where the mean lies around it.

    y = β₀ + β₁·x + ε        β₁ = S_xy / S_xx        s² = Σ (y − ŷ)² / (n − 2)

    t = β₁ / √(s² / S_xx)                        Student's with n − 2 degrees of freedom if β₁ = 0
    ŷ(x) ± q · s · √(1/n + (x − x̄)² / S_xx)      where the mean at x lies; q is a quantile of that t

The thesis (4.2.1) names n degrees of freedom; two were spent on the line, so it is n − 2 here. At its 1,987
points that moves no digit that it prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noise2text.core.errors import Problem

__all__ = ["LinearFit", "critical_t", "fit_line"]

_TINY = 1e-20  # keeps the statistic of points that lie on their line finite


@dataclass(frozen=True)
class LinearFit:
    """The fitted line with what is known about it."""

    count: int
    slope: float
    intercept: float
    correlation: float
    x_mean: float  # x̄
    x_sum_of_squares: float  # S_xx
    residual_std: float  # s

    @property
    def slope_error(self) -> float:
        """The standard error of the slope."""
        return float(self.residual_std / np.sqrt(self.x_sum_of_squares))

    @property
    def t(self) -> float:
        """The test statistic of the slope; by the correlation, so that a perfect line has one, too."""
        r = self.correlation
        return float(r * np.sqrt((self.count - 2) / ((1 - r + _TINY) * (1 + r + _TINY))))

    @property
    def p(self) -> float:
        """How likely so steep a slope, up or down, would be if there were none."""
        return float(2 * _student(self.count).sf(abs(self.t)))

    def predict(self, x: Sequence[float] | np.ndarray) -> np.ndarray:
        """The line's height at each x."""
        return self.intercept + self.slope * np.asarray(x, dtype=float)

    def confidence_band(self, x: Sequence[float] | np.ndarray, *, confidence: float) -> np.ndarray:
        """Half the width of the confidence interval of the mean at each x."""
        apart = (np.asarray(x, dtype=float) - self.x_mean) ** 2 / self.x_sum_of_squares
        return critical_t(self.count, confidence) * self.residual_std * np.sqrt(1 / self.count + apart)


def fit_line(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> LinearFit:
    """The line of least squares."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if len(x) < 3:
        raise Problem(f"A slope can be tested from 3 points on, not from {len(x)}: give more sentences.")
    from_x, from_y = x - x.mean(), y - y.mean()
    x_sum_of_squares, height, common = from_x @ from_x, from_y @ from_y, from_x @ from_y
    if x_sum_of_squares == 0:
        raise Problem("All points have the same x, so there is no slope: give sources of several lengths.")
    slope = common / x_sum_of_squares
    correlation = 0.0 if height == 0 else float(np.clip(common / np.sqrt(x_sum_of_squares * height), -1, 1))
    residual_std = np.sqrt((1 - correlation**2) * height / (len(x) - 2))
    intercept = y.mean() - slope * x.mean()
    numbers = (slope, intercept, correlation, x.mean(), x_sum_of_squares, residual_std)
    return LinearFit(len(x), *map(float, numbers))


def critical_t(count: int, confidence: float) -> float:
    """What |t| of a slope over so many points must exceed to be believed."""
    return float(_student(count).ppf((1 + confidence) / 2))


def _student(count: int) -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise Problem("Tests of slopes need the package scipy: install noise2text[report].") from error
    return stats.t(count - 2)
