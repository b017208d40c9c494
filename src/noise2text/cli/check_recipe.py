"""`noise2text check-recipe`: check the laws that every recipe keeps."""

from __future__ import annotations

from typing import Annotated

import typer

from noise2text.cli.options import app

__all__ = ["check_recipe"]


@app.command(name="check-recipe")
def check_recipe(recipe: Annotated[str, typer.Argument(help="A recipe's name.")]) -> None:
    """Check that a recipe keeps the laws of all recipes.

    It trains, resumes, generates and saves with a small model, in less than a minute on a CPU. The recipe may
    come from another package. If a law is broken, it exits with 1.
    """
    import tempfile
    from pathlib import Path

    from noise2text.commands.check_recipe import check_recipe as run
    from noise2text.models.registry import find_recipe

    found, broken = find_recipe(recipe), 0
    with tempfile.TemporaryDirectory() as folder:
        for result in run(found, Path(folder)):
            broken += bool(result.problem)
            outcome = "FAILED" if result.problem else "–" if result.exception else "ok"
            print(f"{outcome:<7} {result.law}", flush=True)
            if result.problem or result.exception:
                print(f"        {result.problem or result.exception}", flush=True)
    if broken:
        raise typer.Exit(1)
