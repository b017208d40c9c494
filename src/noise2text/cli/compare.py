"""`noise2text compare`: evaluate several models on one test set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import PAIRS, DeviceOption, FieldsOption, SeedOption, app

__all__ = ["compare"]


@app.command()
def compare(
    test: Annotated[str, typer.Option(help=f"The test pairs: {PAIRS}")],
    out: Annotated[Path, typer.Option(help="The folder for the table and the outputs.")],
    models: Annotated[list[Path] | None, typer.Argument(help="Model folders, the baseline first.")] = None,
    fields: FieldsOption = None,
    settings: Annotated[
        Path | None, typer.Option(help="A YAML file of generation settings per model, and of more models.")
    ] = None,
    published: Annotated[
        str | None, typer.Option(help="Also show what papers report on this task, e.g. qqp.")
    ] = None,
    seed: SeedOption = 0,
    batch: Annotated[int, typer.Option(help="Sentences per batch.")] = 32,
    device: DeviceOption = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "auto",
) -> None:
    """Compare models on one test set.

    The table shows speed, quality, diversity, and whether the differences are significant.
    """
    from noise2text.commands.compare import CompareOptions
    from noise2text.commands.compare import compare as run
    from noise2text.commands.display import TerminalDisplay
    from noise2text.data.corpus_paths import with_fields

    options = CompareOptions(seed=seed, batch=batch, device=device, precision=precision)
    with TerminalDisplay.open() as display:
        page = run(
            models or [],
            test=with_fields(test, fields),
            out=out,
            settings=settings,
            reported=published,
            options=options,
            display=display,
        )
    print(page, end="")
