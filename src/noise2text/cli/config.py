"""`noise2text config`: print the config of a recipe as YAML."""

from __future__ import annotations

from typing import Annotated

import typer

from noise2text.cli.options import SetOption, app

__all__ = ["config"]


@app.command()
def config(
    recipe: Annotated[str, typer.Argument(help="A recipe's name.")],
    preset: Annotated[str | None, typer.Option(help="One of its presets.")] = None,
    assignments: SetOption = None,
) -> None:
    """Print the config of a recipe as commented YAML.

    The output is a file for `train --config`.
    """
    from noise2text.core.command_line import parse_assignments
    from noise2text.core.config import apply_overrides
    from noise2text.core.config_files import to_yaml
    from noise2text.models.registry import find_recipe

    start = find_recipe(recipe).preset(preset)
    changed = apply_overrides(start, parse_assignments(assignments), origin="config --set")
    print(to_yaml(changed), end="")
