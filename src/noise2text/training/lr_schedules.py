"""The learning rate as a function of the step: a linear warm-up to 1, then one of four ways on."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["RATES", "Rate", "constant", "cosine", "inverse_sqrt", "linear"]

Rate = Callable[[int], float]
"""The factor on the learning rate at a step, counted from 1."""


def _warmed(warmup: int, then: Rate) -> Rate:
    return lambda step: step / warmup if step < warmup else then(step)


def inverse_sqrt(warmup: int, last: int) -> Rate:
    """Falls with the root of the step (Vaswani et al., 2017)."""
    return _warmed(warmup, lambda step: math.sqrt(max(warmup, 1) / step))


def linear(warmup: int, last: int) -> Rate:
    """Falls on a line to 0 at the last step."""
    return _warmed(warmup, lambda step: max(0.0, 1 - (step - warmup) / max(1, last - warmup)))


def cosine(warmup: int, last: int) -> Rate:
    """Falls on half a cosine to 0 at the last step."""
    return _warmed(
        warmup, lambda step: 0.5 + 0.5 * math.cos(math.pi * min(1.0, (step - warmup) / max(1, last - warmup)))
    )


def constant(warmup: int, last: int) -> Rate:
    """Stays."""
    return _warmed(warmup, lambda step: 1.0)


RATES: dict[str, Callable[[int, int], Rate]] = {
    "inverse-sqrt": inverse_sqrt,
    "linear": linear,
    "cosine": cosine,
    "constant": constant,
}
