"""The learning rate as a function of the step: a linear warm-up to 1, then one of four schedules."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["LR_SCHEDULES", "LRSchedule", "constant", "cosine", "inverse_sqrt", "linear"]

LRSchedule = Callable[[int], float]
"""The factor of the peak learning rate at a step; steps count from 1."""


def _with_warmup(warmup: int, after_warmup: LRSchedule) -> LRSchedule:
    return lambda step: step / warmup if step < warmup else after_warmup(step)


def inverse_sqrt(warmup: int, total_steps: int) -> LRSchedule:
    """Falls with the square root of the step (Vaswani et al., 2017)."""
    return _with_warmup(warmup, lambda step: math.sqrt(max(warmup, 1) / step))


def linear(warmup: int, total_steps: int) -> LRSchedule:
    """Falls linearly to 0 at the last step."""
    return _with_warmup(warmup, lambda step: max(0.0, 1 - (step - warmup) / max(1, total_steps - warmup)))


def cosine(warmup: int, total_steps: int) -> LRSchedule:
    """Falls along half a cosine to 0 at the last step."""
    return _with_warmup(
        warmup,
        lambda step: 0.5 + 0.5 * math.cos(math.pi * min(1.0, (step - warmup) / max(1, total_steps - warmup))),
    )


def constant(warmup: int, total_steps: int) -> LRSchedule:
    """Stays at 1."""
    return _with_warmup(warmup, lambda step: 1.0)


LR_SCHEDULES: dict[str, Callable[[int, int], LRSchedule]] = {
    "inverse-sqrt": inverse_sqrt,
    "linear": linear,
    "cosine": cosine,
    "constant": constant,
}
