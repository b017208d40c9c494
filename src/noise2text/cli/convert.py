"""`noise2text convert`: bring an older model folder up to today's format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import app

__all__ = ["convert"]


@app.command()
def convert(
    old: Annotated[Path, typer.Argument(help="The folder of a model or classifier of an older version.")],
    new: Annotated[Path, typer.Argument(help="The folder to write.")],
) -> None:
    """Convert a model folder of an older version.

    The new folder has today's format; the model stays the same.
    """
    from noise2text.models.convert import convert_folder

    convert_folder(old, new)
    print(f"{new}: the model of {old} in today's format")
