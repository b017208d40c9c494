"""`noise2text prepare`: tokenize a corpus once for many runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import ConfigOption, FieldsOption, SetOption, SkipBadOption, app

__all__ = ["prepare"]


@app.command()
def prepare(
    train: Annotated[str, typer.Option(help="Training pairs.")],
    valid: Annotated[str, typer.Option(help="Validation pairs.")],
    out: Annotated[Path, typer.Option(help="The folder to write; pass OUT/train and OUT/valid to `train`.")],
    fields: FieldsOption = None,
    recipe: Annotated[str, typer.Option(help="The recipe that the preset belongs to.")] = "difformer",
    preset: Annotated[str | None, typer.Option(help="The preset whose tokenizer and limits to use.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    skip_bad: SkipBadOption = False,
) -> None:
    """Tokenize a corpus once for many runs.

    The tokens are written to memory-mapped files.
    """
    from noise2text.commands.prepare import prepare as run
    from noise2text.core.command_line import parse_assignments
    from noise2text.data.corpus_paths import with_fields

    data = run(
        with_fields(train, fields),
        with_fields(valid, fields),
        out=out,
        recipe=recipe,
        preset=preset,
        config=config,
        changes=parse_assignments(assignments),
        skip_bad=skip_bad,
        show_line=print,
    )
    print(f"{out}: {len(data.train):,} training and {len(data.valid):,} validation pairs")
