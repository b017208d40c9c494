"""`noise2text demo`: train a small model in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import SetOption, app

__all__ = ["demo"]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the model and its results.")] = Path("runs/demo"),
    assignments: SetOption = None,
) -> None:
    """Train a small model from scratch in a few minutes.

    It first translates with the shipped model, then learns to read dates: synthesize, train, generate,
    evaluate.
    """
    from noise2text.commands.demo import demo as run
    from noise2text.core.command_line import parse_assignments

    run(out, changes=parse_assignments(assignments))
