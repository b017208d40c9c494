"""`noise2text inspect`: show what a model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from noise2text.cli.folding import print_row
from noise2text.cli.options import JsonOption, app
from noise2text.cli.output import escape_controls

__all__ = ["inspect"]

Facts = dict[str, dict[str, Any]]
"""Facts by heading and name."""


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    as_json: JsonOption = False,
) -> None:
    """Show the recipe, size and settings of a model.

    For a diffusion model, also show the schedule and the anisotropy of the embeddings.
    """
    from noise2text.commands.inspect import inspect_model

    facts = inspect_model(model)
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for title, values in _group(facts).items():
        print(f"\n{title}" if title != "model" else title)
        column = max(map(len, values)) + 4
        for name, value in values.items():
            print_row(name, escape_controls(_show(value)), indent=2, column=column)


def _group(facts: Facts) -> Facts:
    """The facts as they are printed: the settings of training by section, and those of generation once."""
    groups: Facts = {"model": facts["model"]}
    for name, value in facts["settings"].items():
        section = name.partition(".")[0]
        if section != "generation":
            groups.setdefault(f"settings of {section}", {})[name] = value
    return groups | {"settings of generation": facts["generation"]}


def _show(value: object) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
