"""What the presets `tiny` and `tiny-published` of our recipes reached on dates, measured with this package.

tiny_results.toml has one row per recipe and preset, and the commands that produced them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["TinyResult", "measuring_commands", "tiny_results"]


@dataclass(frozen=True)
class TinyResult:
    """The measured figure of a preset: exact match on the 500 test dates, and the time of training."""

    exact_match: float  # percent
    core_seconds: int | None = None  # processor time of one thread on a shared machine, if it was measured
    note: str = ""

    def describe(self) -> str:
        """The figure as one line, such as "98.8 % of the test dates are exact, 84 s of one core"."""
        time = f", {self.core_seconds} s of one core" if self.core_seconds is not None else ""
        note = f" ({self.note})" if self.note else ""
        return f"{self.exact_match:.1f} % of the test dates are exact{time}{note}"


def tiny_results(recipe: str) -> dict[str, TinyResult]:
    """The measured figures of a recipe by preset; empty if nobody has measured it."""
    return {preset: TinyResult(**row) for preset, row in _read().get(recipe, {}).items()}


def measuring_commands() -> list[str]:
    """The commands that measure a figure, with RECIPE for the name of the recipe."""
    return list(_read()["command"])


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("tiny_results.toml").read_text(encoding="utf-8"))
