"""`noise2text page`: write a page, or an animated picture, of noise becoming text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import DeviceOption, PrecisionOption, SeedOption, SetOption, app
from noise2text.cli.output import refuse_overwriting_input
from noise2text.core.errors import Problem

__all__ = ["page"]


@app.command()
def page(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="A model folder or shipped model; give two to compare them."),
    ],
    output: Annotated[
        Path, typer.Option(help="The file to write: page.html, or picture.svg for the first text.")
    ],
    input: Annotated[
        str | None, typer.Option(help="One text per line, JSON Lines with src, or - for standard input.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="A text; may be repeated.")] = None,
    assignments: SetOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    precision: PrecisionOption = "auto",
) -> None:
    """Show noise becoming text: one HTML file without a server, or an animated SVG."""
    from noise2text.core.command_line import decode_argument, parse_assignments
    from noise2text.core.files import write_text_file
    from noise2text.core.locks import lock_output
    from noise2text.data.corpus import read_sources
    from noise2text.models.folder import load
    from noise2text.serving.page_data import collect_page_data, name_models
    from noise2text.serving.page_file import find_page_format

    write_page = find_page_format(output)
    for model in models:
        if model.is_file():
            raise Problem(f"{model} is a file and no model: give texts as --input {model}, after the model.")
    if (input is None) == (not text):
        raise Problem("Give --input FILE or --text TEXT, one of the two.")
    if input is not None:
        refuse_overwriting_input(output, input)
    texts = list(map(decode_argument, text or ())) or list(read_sources(str(input)))
    with lock_output(output):
        loaded = [load(folder, device=device, precision=precision) for folder in models]
        data = collect_page_data(
            dict(zip(name_models(models), loaded, strict=True)),
            texts,
            seed=seed,
            overrides=parse_assignments(assignments),
        )
        write_text_file(output, write_page(data))
    print(f"{output} shows {_count(data.inputs, 'text')} by {_count(data.models, 'model')}.")


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"
