"""`noise2text distill`: write a corpus of a teacher's texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noise2text.cli.options import EXTRA_OPTIONS, DeviceOption, FieldsOption, SetOption, app
from noise2text.cli.ray_options import RayCommand, RayJob, run_on_ray

__all__ = ["distill"]


@app.command(cls=RayCommand, context_settings=EXTRA_OPTIONS)
def distill(
    context: typer.Context,
    teacher: Annotated[Path, typer.Argument(help="The model folder of the teacher, e.g. a transformer.")],
    input: Annotated[str, typer.Option(help="A corpus: its sources are the input, its targets are ignored.")],
    output: Annotated[Path, typer.Option(help="The corpus to write: JSON Lines with src and trg.")],
    fields: FieldsOption = None,
    assignments: SetOption = None,
    seed: Annotated[int, typer.Option(help="Decides the noise, if the teacher uses any.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences per batch; does not change the texts.")] = 32,
    device: DeviceOption = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "auto",
    **options: Annotated[Any, RayJob],
) -> None:
    """Replace the targets of a corpus by a teacher's texts.

    The same command continues where it stopped. Every generation setting of the teacher is an option, e.g.
    --beam 5. Under torchrun the processes share the work.
    """
    from noise2text.commands.display import SilentDisplay, TerminalDisplay
    from noise2text.commands.distill import DistillGroup
    from noise2text.commands.distill import distill as run
    from noise2text.commands.generate_on_ray import PairRecords
    from noise2text.commands.generation_job import GenerationJob
    from noise2text.core.command_line import parse_assignments, parse_options
    from noise2text.data.corpus_paths import with_fields

    input, ray = with_fields(input, fields), RayJob(options)
    overrides = parse_options(context.args) | parse_assignments(assignments)
    if ray.address is not None:
        job = GenerationJob(
            teacher, overrides=overrides, seed=seed, batch=batch, device=device, precision=precision
        )
        run_on_ray(job, PairRecords(), input=input, output=output, resume=True, ray=ray)
        return
    with TerminalDisplay.open() as display:
        run(
            teacher,
            input=input,
            output=output,
            overrides=overrides,
            seed=seed,
            batch=batch,
            device=device,
            precision=precision,
            display=display if DistillGroup.from_environment().rank == 0 else SilentDisplay(),
        )
