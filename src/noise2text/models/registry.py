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
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from noise2text.core.arguments import require_instance
from noise2text.core.errors import Problem, abbreviate, suggest
from noise2text.data.token_store import TokenStore
from noise2text.data.tokenizer import Tokenizer

__all__ = [
    "RENAMED_RECIPES",
    "Fit",
    "Recipe",
    "find_recipe",
    "keep_config",
    "keep_random_weights",
    "list_recipes",
    "register",
]

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

    Fields:
        name: what `noise2text train NAME` calls it.
        paper, paper_section: where it is described.
        summary: one line for `noise2text recipes`.
        presets: configs by name. A config is composed of the sections `data`, `model`, `diffusion`, `optim`,
            `generation` and `run`. `noise2text check-recipe NAME` takes the preset `tiny` if there is one.
        default_preset: the preset that stands for the paper.
        build: a function of config and tokenizer that returns the untrained `Model`.
        objective: a function of config and model that returns the `Objective` of training.
        resolve: a function of config and tokenizer that fills in the settings that depend on the vocabulary.
        initialize: a function of config and model that sets the weights that training starts from.
        fit: for a model that is fitted to its corpus at once, instead of `objective`.

    >>> import dataclasses, noise2text
    >>> difformer = noise2text.list_recipes()["difformer"]
    >>> wide = difformer.preset("tiny").replace(model_dim=256)
    >>> mine = dataclasses.replace(difformer, name="wide", presets={"tiny": wide}, default_preset="tiny")
    >>> mine.preset().model.model_dim
    256
    """

    name: str
    paper: str
    paper_section: str
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
        name = self.default_preset if name is None else name
        if not isinstance(name, str) or name not in self.presets:
            raise Problem(f"{self.name} has no preset {abbreviate(name)}; {suggest(name, self.presets)}")
        return self.presets[name]


RENAMED_RECIPES = {"diffuseq-staggered": "diffuseq-position-sigmoid"}
"""Today's names of recipes by the names that older model folders have; `noise2text convert` maps them."""

OWN_RECIPES = "noise2text.recipes"
"""The module that registers our own recipes; it is imported first, so that no other takes their names."""

ENTRY_POINTS = "noise2text.recipes"
"""The group of entry points that packages with recipes use."""

_REGISTERED: dict[str, Recipe] = {}
_TRIED: set[EntryPoint] = set()  # the entry points whose import has begun


def register(recipe: Recipe) -> Recipe:
    """Make a recipe known to every command and to `load` in this program, and return it.

    A second recipe of the same name is a `Problem`. A package names its recipe as an entry point instead
    (examples/my_recipe), so that it is known in every program.

    Args:
        recipe: the `Recipe`, whose name no other recipe has.

    Returns:
        The same recipe.

    >>> import dataclasses, noise2text
    >>> difformer = noise2text.list_recipes()["difformer"]
    >>> mine = noise2text.register(dataclasses.replace(difformer, name="mine"))
    >>> noise2text.list_recipes()["mine"] is mine
    True
    """
    require_instance(recipe, Recipe, where="register", example="one, such as noise2text.Recipe(name=…)")
    importlib.import_module(OWN_RECIPES)
    known = _REGISTERED.setdefault(recipe.name, recipe)
    if known is not recipe:
        raise Problem(f"There is already a recipe {recipe.name!r}; give the new one another name.")
    return recipe


def list_recipes() -> dict[str, Recipe]:
    """All recipes by their names: this package's, those of other packages, and registered ones.

    Returns:
        A `Recipe` for each name that `noise2text train` takes.

    >>> import noise2text
    >>> recipes = noise2text.list_recipes()
    >>> recipes["difformer"].paper
    'Difformer (Gao et al., 2024)'
    >>> recipes["difformer"].preset("tiny").optim.steps
    3000
    """
    importlib.import_module(OWN_RECIPES)
    _import_entry_points()
    return dict(_REGISTERED)


def find_recipe(name: str) -> Recipe:
    """The recipe of this name; other packages are searched only for names that this one does not have."""
    importlib.import_module(OWN_RECIPES)
    known = _REGISTERED if isinstance(name, str) and name in _REGISTERED else list_recipes()
    if not isinstance(name, str) or name not in known:
        raise Problem(f"There is no recipe {abbreviate(name)}; {suggest(name, known)}")
    return known[name]


def _import_entry_points() -> None:
    """Register the recipes of other packages; a broken one only gives a warning.

    The module of a recipe that is made of another one calls `list_recipes` while it is imported. So what is
    being imported is left to the call that began it.
    """
    for entry in _find_entry_points():
        if entry in _TRIED or _is_being_imported(entry.module):
            continue
        _TRIED.add(entry)
        try:
            register(_check_recipe(entry.load()))
        except Exception as error:  # whatever another package does wrong
            package = f"the package {entry.dist.name}" if entry.dist else "another package"
            reason = str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
            warnings.warn(f"The recipe {entry.name} of {package} cannot be used: {reason}", stacklevel=3)


@functools.cache
def _find_entry_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINTS))


def _is_being_imported(module: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def _check_recipe(value: object) -> Recipe:
    if not isinstance(value, Recipe):
        raise Problem(f"its entry point is of type {type(value).__name__}, not noise2text.Recipe.")
    return value
