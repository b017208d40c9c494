"""What a recipe is: a system by its name, and how to make and train one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from noise2text.problem import Problem
from noise2text.text.prepared import Prepared
from noise2text.text.tokenizer import Tokenizer

__all__ = ["Fit", "Recipe", "from_chance", "unchanged"]

Fit = Callable[[Any, Tokenizer, Prepared], tuple[Any, Any]]
"""Takes settings, tokenizer and training pairs; gives settings that the corpus completed, and the system."""


def from_chance(settings: Any, system: Any) -> None:
    """Leave the initial weights to chance."""


def unchanged(settings: Any, tokenizer: Tokenizer) -> Any:
    """The settings as they are, where none depends on the vocabulary."""
    return settings


def _no_steps(settings: Any, system: Any) -> Any:
    raise Problem(f"{type(system).__name__} takes its corpus in at once and has no steps to train.")


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
    objective: Callable[[Any, Any], Any] = _no_steps
    start: Callable[[Any, Any], None] = from_chance  # where training starts from: settings, system
    fit: Fit | None = None  # for what learns at once instead of by steps on an objective

    def settings(self, preset: str | None = None) -> Any:
        """The settings of a preset, or of the paper."""
        name = preset or self.default
        if name not in self.presets:
            raise Problem(f"{self.name} has no preset {name!r}; it has {', '.join(self.presets)}.")
        return self.presets[name]
