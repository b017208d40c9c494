"""`noise2text settings`: list the settings of a recipe."""

from __future__ import annotations

from typing import Annotated

import typer

from noise2text.cli.options import app

__all__ = ["settings"]


@app.command()
def settings(
    recipe: Annotated[str, typer.Argument(help="A recipe's name.")],
    preset: Annotated[str | None, typer.Option(help="One of its presets.")] = None,
) -> None:
    """List a recipe's settings and their values."""
    from noise2text.core.config import describe
    from noise2text.models.registry import find_recipe

    for name, value, line in describe(find_recipe(recipe).preset(preset)):
        print(f"{name:<22} {value!s:<14} {line}")
