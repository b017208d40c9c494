"""What one request may ask for: texts, characters, candidates and steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from noise2text.core.errors import Problem

__all__ = ["CANDIDATE_FACTORS", "Limits", "check_config", "check_texts", "count_candidates"]


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask for, and the most that may wait."""

    texts: int = 64
    characters: int = 2000
    candidates: int = 64
    steps: int = 200
    body_bytes: int = 1 << 20
    queue: int = 1024
    batch: int = 32
    models: int = 2

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise Problem(f"The limit of {name.replace('_', ' ')} must be at least 1, not {value}.")


STEP_SETTINGS = ("steps", "iterations", "guide_steps")
"""Settings whose cost grows with their value; the limit of steps is theirs."""

CANDIDATE_FACTORS = ("length_beam", "noise_beam", "beam", "samples", "noises", "neighbours")
"""Settings whose product is at least the number of candidates."""


def check_texts(texts: Sequence[str], limits: Limits) -> None:
    """Refuse too many texts, and a text that is too long."""
    if not 1 <= len(texts) <= limits.texts:
        raise Problem(f"A request takes 1 to {limits.texts} texts, not {len(texts)}: send several requests.")
    for number, text in enumerate(texts, 1):
        if len(text) > limits.characters:
            raise Problem(
                f"Text {number} has {len(text)} characters; a text may have {limits.characters}: split it."
            )


def count_candidates(config: Any) -> int:
    """The number of candidates that a generation config gives, or a little more."""
    factors = [getattr(config, name, 1) for name in CANDIDATE_FACTORS]
    return math.prod(max(1, factor) for factor in factors)


def check_config(config: Any, default: Any, limits: Limits) -> None:
    """Refuse more steps or candidates than the limits; the model's own defaults are always allowed."""
    for name in STEP_SETTINGS:
        most = max(limits.steps, getattr(default, name, 0))
        if getattr(config, name, 0) > most:
            raise Problem(f"The setting {name} may be at most {most} here, not {getattr(config, name)}.")
    most = max(limits.candidates, count_candidates(default))
    if count_candidates(config) > most:
        raise Problem(f"A text may have at most {most} candidates here, not {count_candidates(config)}.")
