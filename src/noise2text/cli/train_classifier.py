"""`noise2text train-classifier`: train a classifier that steers generation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import DeviceOption, SetOption, app

__all__ = ["train_classifier"]


@app.command()
def train_classifier(
    model: Annotated[Path, typer.Argument(help="The folder of the diffusion model to steer.")],
    train: Annotated[str, typer.Option(help="Training texts: JSON Lines with trg (or text) and label.")],
    valid: Annotated[str, typer.Option(help="Validation texts, in the same format.")],
    out: Annotated[Path, typer.Option(help="The folder to write the classifier to.")],
    assignments: SetOption = None,
    device: DeviceOption = None,
) -> None:
    """Train a classifier for generate --guide.

    It classifies the noisy texts of a diffusion model, and steers that model towards a class.
    """
    from noise2text.commands.display import TerminalDisplay
    from noise2text.commands.train_classifier import train_classifier as run
    from noise2text.core.command_line import parse_assignments

    with TerminalDisplay.open() as display:
        run(
            model,
            train=train,
            valid=valid,
            out=out,
            changes=parse_assignments(assignments),
            device=device,
            display=display,
        )
