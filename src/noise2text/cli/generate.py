"""`noise2text generate`: generate a text for each line of the input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import EXTRA_OPTIONS, DeviceOption, SetOption, app
from noise2text.cli.output import open_output, refuse_overwriting_input, warn

__all__ = ["generate"]


@app.command(context_settings=EXTRA_OPTIONS)
def generate(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    input: Annotated[
        str, typer.Option(help="One text per line, JSON Lines with src, or - for standard input.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="The file to write, one text per line; by default standard output.")
    ] = None,
    assignments: SetOption = None,
    guide: Annotated[
        str | None, typer.Option(help="The folder of a classifier that steers every text towards --class.")
    ] = None,
    label: Annotated[str | None, typer.Option("--class", help="The class to steer towards.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the noise.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences per batch; does not change the texts.")] = 32,
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Print the text at every step; with --json it is part of the output."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON Lines: each text with its candidates and scores.")
    ] = False,
    teacher: Annotated[
        Path | None,
        typer.Option(help="The autoregressive model that selects, with --select teacher."),
    ] = None,
    likelihood: Annotated[
        str,
        typer.Option(help="The teacher's score: mean or sum of the tokens' log-likelihoods."),
    ] = "mean",
    copies: Annotated[
        bool,
        typer.Option(help="Whether a candidate that copies its source may be chosen."),
    ] = True,
    device: DeviceOption = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 (on a CPU) or auto.")] = "auto",
) -> None:
    """Generate a text for each line of the input.

    Every generation setting of the model is an option, e.g. --steps 10 --length-beam 3; `noise2text inspect
    MODEL` lists them.
    """
    from noise2text.commands.display import count_progress
    from noise2text.commands.generate import build_selector, generate_texts
    from noise2text.core.config import parse_assignments, parse_options
    from noise2text.data.corpus import read_sources
    from noise2text.models.folder import load

    texts = read_sources(input)
    loaded = load(model, device=device, precision=precision)
    guidance_settings = {
        name: value for name, value in (("guide", guide), ("guide_class", label)) if value is not None
    }
    overrides = parse_options(context.args) | parse_assignments(assignments) | guidance_settings
    selector = build_selector(
        loaded, overrides, teacher, reduction=likelihood, device=device, precision=precision, copies=copies
    )
    refuse_overwriting_input(output, input)
    with open_output(output) as write, count_progress("sentences") as count:
        for line in generate_texts(
            loaded,
            texts,
            seed=seed,
            batch=batch,
            trace=trace,
            overrides=overrides,
            selector=selector,
            show_line=warn,
        ):
            for step in () if as_json else line.trace:
                print(f"  t={step.time:.3f}  {step.text}")
            write(line.as_json() if as_json else line.as_text())
            count()
