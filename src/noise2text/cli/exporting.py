"""The command that writes a model for another engine than torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import SetOption, app
from noise2text.core.errors import Problem

__all__ = ["export"]


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="A model folder of a diffusion model.")],
    out: Annotated[Path, typer.Option(help="The folder for the exported model.")],
    precision: Annotated[str, typer.Option(help="float32 or int8.")] = "float32",
    check: Annotated[
        str | None, typer.Option(help="Compare the texts for these sources with the model's own.")
    ] = None,
    assignments: SetOption = None,
    seed: Annotated[int, typer.Option(help="Decides the noise of --check.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences at once in --check.")] = 32,
) -> None:
    """Write a diffusion model as ONNX graphs, which `noise2text generate` runs with onnxruntime on a CPU.

    Generation settings, --set steps=10, are those of --check.
    """
    from noise2text.commands.export import check_export as compare
    from noise2text.commands.export import export as write
    from noise2text.core.config import apply_overrides, parse_assignments
    from noise2text.data.corpus import read_sources
    from noise2text.models.folder import load

    settings = parse_assignments(assignments)
    if check is None and settings:
        raise Problem("--set changes how --check generates: name a file with --check, or leave --set out.")
    texts = None if check is None else list(read_sources(check))
    if texts == []:
        raise Problem(f"{check} holds no texts to check the export with.")
    apply_overrides(load(model, device="cpu").how, settings, origin="export --check")
    engine = write(model, out, precision=precision)
    print(f"{out}: {engine.parameters:,} parameters, {engine.precision}, {', '.join(engine.graphs)}")
    if texts is not None:
        for found in compare(model, out, texts, seed=seed, batch=batch, overrides=settings):
            print(f"{found.same:,} of {found.texts:,} texts are the same as torch's in {found.precision}")
