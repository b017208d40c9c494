"""`noise2text sample`: generate pairs of source and target."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import EXTRA_OPTIONS, DeviceOption, PrecisionOption, SeedOption, SetOption, app
from noise2text.cli.output import open_output, require_folder_of
from noise2text.core.errors import Problem

__all__ = ["sample"]


@app.command(context_settings=EXTRA_OPTIONS)
def sample(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="The folder of a model of pairs, e.g. diffusion-lm.")],
    count: Annotated[int, typer.Option(help="How many pairs.")],
    source: Annotated[
        str, typer.Option(help="A template for the source, e.g. '7 april ___{4}'; by default free.")
    ] = "",
    target: Annotated[str, typer.Option(help="A template for the target; by default free.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(help="The file to write, JSON Lines with src and trg; by default standard output."),
    ] = None,
    assignments: SetOption = None,
    seed: SeedOption = 0,
    batch: Annotated[int, typer.Option(help="Pairs per batch; does not change the texts.")] = 32,
    device: DeviceOption = None,
    precision: PrecisionOption = "auto",
) -> None:
    """Generate pairs of source and target.

    Both sides come from noise, or fill in a template.
    """
    from noise2text.commands.display import count_progress
    from noise2text.core.command_line import parse_assignments, parse_options
    from noise2text.models.folder import load

    if count < 1:
        raise Problem(f"--count must be at least 1 pair, not {count}.")
    require_folder_of(output)
    loaded = load(model, device=device, precision=precision)
    settings = parse_options(context.args) | parse_assignments(assignments)
    is_seen = output is None and sys.stdout.isatty()
    counted = nullcontext(lambda number: None) if is_seen else count_progress("pairs", count)
    with open_output(output) as lines, counted as advance:
        for src, trg in loaded.generate_pairs(
            count, source=source, target=target, seed=seed, batch=batch, **settings
        ):
            lines.write(json.dumps({"src": src, "trg": trg}, ensure_ascii=False))
            advance(1)
