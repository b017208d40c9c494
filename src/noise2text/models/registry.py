"""The registry of recipes: what a recipe is, and where each is found by its name.

The recipes of this package and those of other packages are found in the same way: by importing the room
`noise2text.recipes` and every entry point of the group of that name, once, when a recipe is first asked for.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from noise2text.core.errors import Problem, suggest
from noise2text.data.token_store import TokenStore
from noise2text.data.tokenizer import Tokenizer

__all__ = ["Fit", "Recipe", "find_recipe", "keep_config", "keep_random_weights", "recipes", "register"]

Fit = Callable[[Any, Tokenizer, TokenStore], tuple[Any, Any]]
"""Takes settings, tokenizer and training pairs; gives settings that the corpus completed, and the system."""


def keep_random_weights(config: Any, model: Any) -> None:
    """Leave the initial weights to chance."""


def keep_config(config: Any, tokenizer: Tokenizer) -> Any:
    """The settings as they are, where none depends on the vocabulary."""
    return config


def _reject_training(config: Any, model: Any) -> Any:
    raise Problem(f"{type(model).__name__} takes its corpus in at once and has no steps to train.")


@dataclass(frozen=True)
class Recipe:
    """A system by its name: where it is described, its settings, and how to build and train it."""

    name: str
    paper: str
    section: str
    summary: str
    presets: Mapping[str, Any]
    default_preset: str  # the preset that stands for the paper
    resolve: Callable[[Any, Tokenizer], Any]  # settings that depend on the vocabulary
    build: Callable[[Any, Tokenizer], Any]
    objective: Callable[[Any, Any], Any] = _reject_training
    initialize: Callable[[Any, Any], None] = (
        keep_random_weights  # where training starts from: settings, system
    )
    fit: Fit | None = None  # for what learns at once instead of by steps on an objective

    def preset(self, preset: str | None = None) -> Any:
        """The settings of a preset, or of the paper."""
        name = preset or self.default_preset
        if name not in self.presets:
            raise Problem(f"{self.name} has no preset {name!r}; it has {', '.join(self.presets)}.")
        return self.presets[name]


_REGISTERED: dict[str, Recipe] = {}


def register(recipe: Recipe) -> Recipe:
    """Make a recipe known to every command and to `load`; another one of the same name is refused."""
    known = _REGISTERED.setdefault(recipe.name, recipe)
    if known is not recipe:
        raise Problem(f"There is already a recipe {recipe.name!r}; give the new one another name.")
    return recipe


def recipes() -> Mapping[str, Recipe]:
    """All recipes by their names: this package's, then those of other packages."""
    _import_recipes()
    return dict(_REGISTERED)


def find_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    known = recipes()
    if name not in known:
        raise Problem(f"There is no recipe {name!r}; {suggest(name, known)}")
    return known[name]


@functools.cache
def _import_recipes() -> None:
    importlib.import_module("noise2text.recipes")
