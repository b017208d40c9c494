"""The registry of recipes: what a recipe is, and how it is found by its name.

A recipe lives in this package (`noise2text.recipes`), in another package that names it as an entry point of
the group `noise2text.recipes`, or anywhere in a program that calls `noise2text.register(recipe)`. Wherever
it lives, it works in every command and in `load`.

    [project.entry-points."noise2text.recipes"]     # in the other package's pyproject.toml
    mine = "my_package.recipe:RECIPE"
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from noise2text.core.errors import Problem, suggest
from noise2text.data.token_store import TokenStore
from noise2text.data.tokenizer import Tokenizer

__all__ = ["Fit", "Recipe", "find_recipe", "keep_config", "keep_random_weights", "list_recipes", "register"]

Fit = Callable[[Any, Tokenizer, TokenStore], tuple[Any, Any]]
"""From config, tokenizer and training pairs to the config that the corpus completed, and the model."""


def keep_random_weights(config: Any, model: Any) -> None:
    """Start from random weights."""


def keep_config(config: Any, tokenizer: Tokenizer) -> Any:
    """The config as it is, where nothing depends on the vocabulary."""
    return config


def _reject_training(config: Any, model: Any) -> Any:
    raise Problem(f"{type(model).__name__} is fitted to its corpus at once and has no steps to train.")


@dataclass(frozen=True)
class Recipe:
    """A system by its name: where it is described, its presets, and how to build and train it.

    RECIPE = Recipe(
        name="mine",
        paper="My paper (2027)",
        section="3",
        summary="One line for `noise2text recipes`.",
        presets={"tiny": MyConfig()},      # a composed config: data, model, diffusion, optim, generation, run
        default_preset="tiny",
        build=build,                       # (config, tokenizer) → Model
        objective=objective,               # (config, model) → Objective
    )
    """

    name: str
    paper: str
    section: str
    summary: str
    presets: Mapping[str, Any]
    default_preset: str  # the preset that stands for the paper
    build: Callable[[Any, Tokenizer], Any]  # (config, tokenizer) → an untrained Model
    objective: Callable[[Any, Any], Any] = _reject_training  # (config, model) → what training minimises
    resolve: Callable[[Any, Tokenizer], Any] = keep_config  # fills in what depends on the vocabulary
    initialize: Callable[[Any, Any], None] = keep_random_weights  # (config, model): where training starts
    fit: Fit | None = None  # for what is fitted to its corpus at once instead of trained by steps

    def preset(self, name: str | None = None) -> Any:
        """The config of a preset, or of the default one."""
        name = name or self.default_preset
        if name not in self.presets:
            raise Problem(f"{self.name} has no preset {name!r}; {suggest(name, self.presets)}")
        return self.presets[name]


_REGISTERED: dict[str, Recipe] = {}


def register(recipe: Recipe) -> Recipe:
    """Make a recipe known to every command and to `load`; another one of the same name is refused."""
    known = _REGISTERED.setdefault(recipe.name, recipe)
    if known is not recipe:
        raise Problem(f"There is already a recipe {recipe.name!r}; give the new one another name.")
    return recipe


def list_recipes() -> Mapping[str, Recipe]:
    """All recipes by their names: this package's, then those of other packages."""
    _import_recipes()
    return dict(_REGISTERED)


def find_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    known = list_recipes()
    if name not in known:
        raise Problem(f"There is no recipe {name!r}; {suggest(name, known)}")
    return known[name]


@functools.cache
def _import_recipes() -> None:
    """Register the recipes of this package and of entry points; a broken entry point is only warned of."""
    importlib.import_module("noise2text.recipes")
    for entry in entry_points(group="noise2text.recipes"):
        try:
            register(entry.load())
        except Exception as error:  # whatever another package does wrong
            package = entry.dist.name if entry.dist else "another package"
            warnings.warn(f"The recipe {entry.name} of {package} cannot be used: {error}", stacklevel=2)
