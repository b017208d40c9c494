"""`noise2text train`: train a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import (
    PAIRS_OR_PREPARED,
    ConfigOption,
    DeviceOption,
    SetOption,
    SkipBadOption,
    app,
)

__all__ = ["train"]


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="The recipe, e.g. difformer; `noise2text recipes` lists them.")
    ],
    train: Annotated[str, typer.Option(help=f"Training pairs: {PAIRS_OR_PREPARED}")],
    valid: Annotated[str, typer.Option(help=f"Validation pairs: {PAIRS_OR_PREPARED}")],
    out: Annotated[Path, typer.Option(help="The folder of the run, which becomes the model.")],
    preset: Annotated[str | None, typer.Option(help="The name of published settings, or tiny.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False,
    skip_bad: SkipBadOption = False,
    device: DeviceOption = None,
) -> None:
    """Train a model on pairs of texts."""
    from noise2text.commands.display import TerminalDisplay
    from noise2text.commands.train import train as run
    from noise2text.core.config import parse_assignments

    with TerminalDisplay.open() as display:
        run(
            recipe,
            train=train,
            valid=valid,
            out=out,
            preset=preset,
            config=config,
            changes=parse_assignments(assignments),
            resume=resume,
            skip_bad=skip_bad,
            device=device,
            display=display,
        )
