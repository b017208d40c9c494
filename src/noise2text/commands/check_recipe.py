"""`noise2text check-recipe`: whether a recipe, of this package or another, keeps the laws of all recipes.

for law in LAWS:
    law(recipe, Workspace.create(folder, recipe))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from noise2text.commands.diffusion_laws import DIFFUSION_LAWS
from noise2text.commands.recipe_laws import RECIPE_LAWS, DoesNotApply, Law, Workspace
from noise2text.models.registry import Recipe

__all__ = ["LAWS", "LawResult", "check_recipe", "name_law"]

LAWS: tuple[Law, ...] = (*RECIPE_LAWS, *DIFFUSION_LAWS)


@dataclass(frozen=True)
class LawResult:
    """Whether a recipe keeps a law, and if not, what went wrong, or why the law does not apply to it."""

    law: str
    problem: str = ""
    exception: str = ""


def check_recipe(recipe: Recipe, folder: Path) -> Iterator[LawResult]:
    """Whether the recipe keeps each law; corpus and runs are written to the folder."""
    workspace = Workspace.create(folder, recipe)
    for law in LAWS:
        name = name_law(law)
        try:
            law(recipe, workspace)
        except DoesNotApply as reason:
            yield LawResult(name, exception=str(reason))
        except Exception as error:  # any error of a recipe is a result
            yield LawResult(name, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        else:
            yield LawResult(name)


def name_law(law: Law) -> str:
    """The law as a sentence, which its function's name is."""
    return law.__name__.replace("_", " ")
