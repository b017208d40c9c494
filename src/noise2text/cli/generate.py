"""`noise2text generate`: generate a text for each line of the input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noise2text.cli.options import (
    EXTRA_OPTIONS,
    FILES,
    HARDWARE,
    DeviceOption,
    FieldsOption,
    PrecisionOption,
    SeedOption,
    SetOption,
    app,
)
from noise2text.cli.output import open_output, print_text, refuse_overwriting_input, warn
from noise2text.cli.ray_options import RayCommand, RayOption, ShardRowsOption, WorkersOption, run_on_ray
from noise2text.core.errors import Problem, Stopped

if TYPE_CHECKING:
    from noise2text.commands.output_file import OutputLines

__all__ = ["generate"]

_CHOICE, _CONTROL = "Several texts, and which is best", "Control"


@app.command(cls=RayCommand, context_settings=EXTRA_OPTIONS)
def generate(
    model: Annotated[
        Path, typer.Argument(help="A model folder, a shipped model such as de-en, or org/name on the hub.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="The texts; without any, --input or standard input."),
    ] = None,
    input: Annotated[
        str | None,
        typer.Option(
            help="One text per line, JSON with src, CSV, TSV, Parquet, or - for standard input.",
            rich_help_panel=FILES,
        ),
    ] = None,
    fields: FieldsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file to write, one text per line; by default standard output.", rich_help_panel=FILES
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an --output that was stopped.", rich_help_panel=FILES)
    ] = False,
    n: Annotated[
        int,
        typer.Option(
            "--n",
            help="Different texts per input, best first: one per line on a terminal, else with tabs between.",
            rich_help_panel=_CHOICE,
        ),
    ] = 1,
    floor: Annotated[
        float,
        typer.Option(
            help="How far the score of one of --n texts may be below the best.", rich_help_panel=_CHOICE
        ),
    ] = 1.5,
    assignments: SetOption = None,
    guide: Annotated[
        str | None,
        typer.Option(
            help="The folder of a classifier that steers every text towards --class.",
            rich_help_panel=_CONTROL,
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--class", help="The class to steer towards.", rich_help_panel=_CONTROL)
    ] = None,
    seed: SeedOption = 0,
    batch: Annotated[
        int, typer.Option(help="Sentences per batch; does not change the texts.", rich_help_panel=HARDWARE)
    ] = 32,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Print the text at every step; with --json it is part of the output.",
            rich_help_panel=FILES,
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Write JSON Lines: each text with its candidates and scores.",
            rich_help_panel=FILES,
        ),
    ] = False,
    teacher: Annotated[
        Path | None,
        typer.Option(
            help="The autoregressive model that selects, with --select teacher.", rich_help_panel=_CHOICE
        ),
    ] = None,
    likelihood: Annotated[
        str,
        typer.Option(
            help="The teacher's score: mean or sum of the tokens' log-likelihoods.", rich_help_panel=_CHOICE
        ),
    ] = "mean",
    copies: Annotated[
        bool,
        typer.Option(help="Allow candidates that copy the source.", rich_help_panel=_CHOICE),
    ] = True,
    device: DeviceOption = None,
    precision: PrecisionOption = "auto",
    ray: RayOption = None,
    workers: WorkersOption = None,
    shard_rows: ShardRowsOption = 10_000,
) -> None:
    """Generate a text for each text or line of a file.

    Every generation setting of the model is an option, e.g. --steps 10 --length-beam 3; `noise2text generate
    MODEL -h` lists them with the model's values.
    """
    from noise2text.commands.display import count_progress
    from noise2text.commands.generate import generate_texts
    from noise2text.commands.generate_on_ray import RayOptions, TextRecords
    from noise2text.commands.generation_job import GenerationJob
    from noise2text.commands.input_texts import find_texts
    from noise2text.core.command_line import parse_assignments, parse_options, split_texts
    from noise2text.data.fields import with_fields

    given, options = split_texts(arguments or [])
    if input is not None:
        input = with_fields(input, fields)
        refuse_overwriting_input(output, input)
    if resume and (output is None or given):
        raise Problem("--resume goes on with an --output of an --input: give both.")
    guidance = {
        name: value for name, value in (("guide", guide), ("guide_class", label)) if value is not None
    }
    job = GenerationJob(
        model,
        overrides=parse_options(options) | parse_assignments(assignments) | guidance,
        seed=seed,
        batch=batch,
        n=n,
        floor=floor,
        trace=trace,
        teacher=teacher,
        likelihood=likelihood,
        copies=copies,
        device=device,
        precision=precision,
    )
    if ray is not None:
        if input is None or output is None or given:
            raise Problem("--ray maps an --input to an --output: give both, and no texts.")
        columns = (("alternatives", n > 1), ("candidates", as_json), ("trace", trace))
        records = TextRecords(tuple(name for name, is_asked in columns if is_asked))
        cluster = RayOptions(ray, workers, shard_rows)
        run_on_ray(job, records, input=input, output=output, resume=resume, options=cluster)
        return
    texts = find_texts(given, input, line_by_line=output is None)
    loaded = job.load()
    started_with = job.describe() | {"input": texts.identity, "format": f"json={as_json}, trace={trace}"}
    texts_are_seen = output is None and sys.stdout.isatty()
    with (
        open_output(output, resume=resume, started_with=started_with) as lines,
        nullcontext(_ignore) if texts_are_seen else count_progress("sentences", texts.total) as advance,
        _explain_stop(lines, output),
    ):
        for generated in generate_texts(
            loaded,
            texts.texts,
            show_line=warn,
            cut_windows=texts.cut_windows,
            done=lines.resumed,
            advance=advance,
        ):
            for step in () if as_json else generated.trace:
                print_text(f"  t={step.time:.3f}  {step.text}")
            separator = "\n" if texts_are_seen else "\t"
            lines.write(generated.as_json() if as_json else generated.as_text(separator))


def _ignore(count: int) -> None:
    pass


@contextmanager
def _explain_stop(lines: OutputLines, output: Path | None) -> Iterator[None]:
    """Context manager: Ctrl-C says what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if output is None or not lines.written:
            raise Stopped("Stopped.") from stop
        raise Stopped(
            f"Stopped: {lines.written:,} texts are kept in {output}.draft; add --resume to go on."
        ) from stop
