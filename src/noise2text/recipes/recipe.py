"""What a recipe is: a system by its name, and how to make and train one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from noise2text.problem import Problem
from noise2text.text.tokenizer import Tokenizer

__all__ = ["Recipe", "from_chance"]


def from_chance(settings: Any, system: Any) -> None:
    """Leave the initial weights to chance."""


@dataclass(frozen=True)
class Recipe:
    """A system by its name: where it is described, its settings, and how to build and train it."""

    name: str
    paper: str
    section: str
    line: str
    presets: Mapping[str, Any]
    default: str  # the preset that stands for the paper
    resolve: Callable[[Any, Tokenizer], Any]  # settings that depend on the vocabulary
    build: Callable[[Any, Tokenizer], Any]
    objective: Callable[[Any, Any], Any]
    start: Callable[[Any, Any], None] = from_chance  # where training starts from: settings, system

    def settings(self, preset: str | None = None) -> Any:
        """The settings of a preset, or of the paper."""
        name = preset or self.default
        if name not in self.presets:
            raise Problem(f"{self.name} has no preset {name!r}; it has {', '.join(self.presets)}.")
        return self.presets[name]
