"""`noise2text export`: write a model as ONNX graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import SetOption, app
from noise2text.core.errors import Problem

__all__ = ["export"]


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="The folder of a diffusion model.")],
    out: Annotated[Path, typer.Option(help="The folder for the exported model.")],
    precision: Annotated[str, typer.Option(help="float32 or int8.")] = "float32",
    check: Annotated[
        str | None,
        typer.Option(help="Compare the texts for these sources with the original model's."),
    ] = None,
    assignments: SetOption = None,
    seed: Annotated[int, typer.Option(help="Decides the noise of --check.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences per batch in --check.")] = 32,
) -> None:
    """Export a diffusion model to ONNX.

    `noise2text generate` runs the exported model with onnxruntime on a CPU.

    --set changes the generation settings of --check, e.g. --set steps=10.
    """
    from noise2text.commands.display import show_elapsed
    from noise2text.commands.export import check_export
    from noise2text.commands.export import export as run
    from noise2text.core.command_line import parse_assignments
    from noise2text.core.config import apply_overrides
    from noise2text.data.corpus import read_sources
    from noise2text.models.folder import load

    settings = parse_assignments(assignments)
    if check is None and settings:
        raise Problem("--set changes how --check generates: add --check FILE, or leave out --set.")
    texts = None if check is None else list(read_sources(check))
    if texts == []:
        raise Problem(f"{check} has no texts to check the export with.")
    apply_overrides(load(model, device="cpu").generation_config, settings, origin="export --check")
    with show_elapsed("exporting"):
        engine = run(model, out, precision=precision)
    print(f"{out}: {engine.parameters:,} parameters, {engine.precision}, {', '.join(engine.graphs)}")
    if texts is not None:
        for found in check_export(model, out, texts, seed=seed, batch=batch, overrides=settings):
            print(f"{found.same:,} of {found.texts:,} texts are the same as with torch in {found.precision}")
