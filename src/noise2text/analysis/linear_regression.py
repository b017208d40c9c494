"""Simple linear regression: the least-squares line, a t-test of its slope, and a confidence band.

    y = β₀ + β₁·x + ε        β₁ = S_xy / S_xx        s² = Σ (y − ŷ)² / (n − 2)

    t = β₁ / √(s² / S_xx)                        Student's t with n − 2 degrees of freedom if β₁ = 0
    ŷ(x) ± q · s · √(1/n + (x − x̄)² / S_xx)      confidence band of the mean at x; q is a quantile of that t

Demirag (2023, 4.2.1) uses n degrees of freedom; the line takes two, so it is n − 2 here. With 1,987 points
this changes no printed digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noise2text.core.errors import Problem

__all__ = ["LinearFit", "critical_t", "fit_line"]

_TINY = 1e-20  # keeps t finite if all points lie on the line


@dataclass(frozen=True)
class LinearFit:
    """The fitted line and its statistics."""

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
        """The t statistic of the slope, from the correlation, so that it exists for a perfect line."""
        r = self.correlation
        return float(r * np.sqrt((self.count - 2) / ((1 - r + _TINY) * (1 + r + _TINY))))

    @property
    def p(self) -> float:
        """The two-sided p-value of the slope."""
        return float(2 * _student(self.count).sf(abs(self.t)))

    def predict(self, x: Sequence[float] | np.ndarray) -> np.ndarray:
        """The fitted value at each x."""
        return self.intercept + self.slope * np.asarray(x, dtype=float)

    def confidence_band(self, x: Sequence[float] | np.ndarray, *, confidence: float) -> np.ndarray:
        """Half the width of the confidence interval of the mean at each x."""
        distance = (np.asarray(x, dtype=float) - self.x_mean) ** 2 / self.x_sum_of_squares
        return critical_t(self.count, confidence) * self.residual_std * np.sqrt(1 / self.count + distance)


def fit_line(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> LinearFit:
    """The least-squares line."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if len(x) < 3:
        raise Problem(f"A slope needs at least 3 points, not {len(x)}: give more sentences.")
    x_centered, y_centered = x - x.mean(), y - y.mean()
    x_sum_of_squares, y_sum_of_squares = x_centered @ x_centered, y_centered @ y_centered
    sum_of_products = x_centered @ y_centered
    if x_sum_of_squares == 0:
        raise Problem("All points have the same x, so there is no slope: give sources of several lengths.")
    slope = sum_of_products / x_sum_of_squares
    scale = np.sqrt(x_sum_of_squares * y_sum_of_squares)
    correlation = 0.0 if y_sum_of_squares == 0 else float(np.clip(sum_of_products / scale, -1, 1))
    residual_std = np.sqrt((1 - correlation**2) * y_sum_of_squares / (len(x) - 2))
    intercept = y.mean() - slope * x.mean()
    numbers = (slope, intercept, correlation, x.mean(), x_sum_of_squares, residual_std)
    return LinearFit(len(x), *map(float, numbers))


def critical_t(count: int, confidence: float) -> float:
    """The critical value of |t| for a slope over this many points."""
    return float(_student(count).ppf((1 + confidence) / 2))


def _student(count: int) -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise Problem("The t-test needs the package scipy: pip install 'noise2text[report]'.") from error
    return stats.t(count - 2)
