"""`noise2text generate`: generate a text for each line of the input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noise2text.cli.option_groups import OptionGroup
from noise2text.cli.options import (
    EXTRA_OPTIONS,
    FILES,
    HARDWARE,
    SETTINGS,
    DeviceOption,
    FieldsOption,
    PrecisionOption,
    SeedOption,
    SetOption,
    app,
)
from noise2text.cli.output import open_output, print_text, refuse_overwriting_input, require_folder_of, warn
from noise2text.cli.ray_options import RayCommand, RayJob, run_on_ray
from noise2text.core.errors import Problem, Stopped, abbreviate

if TYPE_CHECKING:
    from noise2text.commands.generate import GeneratedText
    from noise2text.commands.generation_job import GenerationJob
    from noise2text.commands.input_texts import InputTexts
    from noise2text.commands.output_file import OutputLines

__all__ = ["generate"]


class GenerationFiles(OptionGroup):
    """What is read, what is written, and how."""

    panel = FILES
    input: Annotated[
        str | None,
        typer.Option(help="One text per line, JSON with src, CSV, TSV, Parquet, or - for standard input."),
    ] = None
    fields: FieldsOption = None
    output: Annotated[
        Path | None,
        typer.Option(help="The file to write, one text per line; by default standard output."),
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an --output that was stopped.")] = False
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Print the text at every step; with --json it is part of the output."),
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON Lines: each text with its candidates and scores.")
    ] = False


class Choice(OptionGroup):
    """How many texts, and which: fields of a `GenerationJob`."""

    panel = "Several texts, and which is best"
    n: Annotated[
        int,
        typer.Option(
            "--n",
            help="Different texts per input, best first: one per line on a terminal, else with tabs between.",
        ),
    ] = 1
    floor: Annotated[
        float, typer.Option(help="How far the score of one of --n texts may be below the best.")
    ] = 1.5
    teacher: Annotated[
        Path | None, typer.Option(help="The autoregressive model that selects, with --select teacher.")
    ] = None
    likelihood: Annotated[
        str, typer.Option(help="The teacher's score: mean or sum of the tokens' log-likelihoods.")
    ] = "mean"
    copies: Annotated[bool, typer.Option(help="Allow candidates that copy the source.")] = True


class GenerationSettings(OptionGroup):
    """The generation settings, and the seed."""

    panel = SETTINGS
    assignments: SetOption = None
    seed: SeedOption = 0


class Control(OptionGroup):
    """What steers the texts: generation settings that have options of their own."""

    panel = "Control"
    guide: Annotated[
        str | None, typer.Option(help="The folder of a classifier that steers every text towards --class.")
    ] = None
    guide_class: Annotated[str | None, typer.Option("--class", help="The class to steer towards.")] = None


class BatchAndHardware(OptionGroup):
    """Where it runs: fields of a `GenerationJob`."""

    panel = HARDWARE
    batch: Annotated[int, typer.Option(help="Sentences per batch; does not change the texts.")] = 32
    device: DeviceOption = None
    precision: PrecisionOption = "auto"


@app.command(cls=RayCommand, context_settings=EXTRA_OPTIONS)
def generate(
    model: Annotated[
        Path, typer.Argument(help="A model folder, a shipped model such as de-en, or org/name on the hub.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="The texts; without any, --input or standard input."),
    ] = None,
    **options: Annotated[Any, GenerationFiles, Choice, GenerationSettings, Control, BatchAndHardware, RayJob],
) -> None:
    """Generate a text for each text or line of a file.

    Every generation setting of the model is an option, e.g. --steps 10 --length-beam 3; `noise2text generate
    MODEL -h` lists them with the model's values.
    """
    from noise2text.commands.generate import generate_texts
    from noise2text.commands.generation_job import GenerationJob
    from noise2text.commands.input_texts import find_texts
    from noise2text.commands.output_file import has_finished, require_same_job
    from noise2text.core.command_line import parse_assignments, parse_options, split_texts

    files, settings, ray = GenerationFiles(options), GenerationSettings(options), RayJob(options)
    texts, words = split_texts(arguments or [])
    _notice_swapped_words(model, texts)
    input = _find_input(files, texts)
    control = {name: value for name, value in vars(Control(options)).items() if value is not None}
    job = GenerationJob(
        model,
        overrides=parse_options(words) | parse_assignments(settings.assignments) | control,
        seed=settings.seed,
        trace=files.trace,
        **vars(Choice(options)),
        **vars(BatchAndHardware(options)),
    )
    if ray.address is not None:
        if input is None or files.output is None or texts:
            raise Problem("--ray maps an --input to an --output: give both, and no texts.")
        _generate_on_ray(job, input, files.output, files, ray)
        return
    require_folder_of(files.output)
    inputs = find_texts(texts, input, line_by_line=files.output is None)
    if files.resume and files.output is not None and has_finished(files.output):
        require_same_job(files.output, _describe(job, inputs, files), from_pipe=inputs.total is None)
        warn(f"{files.output} is finished and stays as it is; leave out --resume to generate it again.")
        return
    loaded = job.load()
    with _open_lines(job, inputs, files) as (lines, advance):
        for generated in generate_texts(
            loaded,
            inputs.texts,
            show_line=warn,
            cut_windows=inputs.cut_windows,
            done=lines.resumed,
            advance=advance,
        ):
            lines.write(_show(generated, files))


def _notice_swapped_words(model: Path, texts: list[str]) -> None:
    """Raise a Problem for a model that comes after its texts, and warn of a text that is a file's name."""
    from noise2text.core.files import exists
    from noise2text.models.hub import is_hub_name
    from noise2text.models.shipped import list_shipped_models

    shipped = list_shipped_models()
    if not ((exists(model) and model.is_dir()) or str(model) in shipped or is_hub_name(str(model))):
        for text in texts:
            if text in shipped or exists(Path(text) / "config.json"):
                rest = f"--input {quote(str(model))}" if exists(model) else abbreviate(str(model))
                raise Problem(f"The model comes first: noise2text generate {text} {rest}.")
    for text in texts:
        if exists(Path(text)) and Path(text).is_file():
            warn(f"{text} is taken as a text; to read the file of this name, give --input {quote(text)}.")


def _find_input(files: GenerationFiles, texts: list[str]) -> str | None:
    """The file of the texts with the names of its columns; a Problem if it, or --resume, makes no sense."""
    from noise2text.data.corpus_paths import with_fields

    if files.resume and (files.output is None or texts):
        raise Problem("--resume goes on with an --output of an --input: give both.")
    if files.input is None:
        return None
    input = with_fields(files.input, files.fields)
    refuse_overwriting_input(files.output, input)
    return input


def _generate_on_ray(
    job: GenerationJob, input: str, output: Path, files: GenerationFiles, ray: RayJob
) -> None:
    from noise2text.commands.generate_on_ray import TextRecords

    columns = (("alternatives", job.n > 1), ("candidates", files.as_json), ("trace", files.trace))
    records = TextRecords(tuple(name for name, is_asked in columns if is_asked))
    run_on_ray(job, records, input=input, output=output, resume=files.resume, ray=ray)


def _describe(job: GenerationJob, inputs: InputTexts, files: GenerationFiles) -> dict[str, Any]:
    """What decides the lines of the output."""
    kind = f"json={files.as_json}, trace={files.trace}"
    return job.describe() | {"input": inputs.identity, "format": kind}


@contextmanager
def _open_lines(
    job: GenerationJob, inputs: InputTexts, files: GenerationFiles
) -> Iterator[tuple[OutputLines, Callable[[int], None]]]:
    """Context manager: where lines are written, and what is called with the number of finished texts."""
    from noise2text.commands.display import count_progress

    progress = nullcontext(_ignore) if _texts_are_seen(files) else count_progress("sentences", inputs.total)
    with (
        open_output(files.output, resume=files.resume, started_with=_describe(job, inputs, files)) as lines,
        progress as advance,
        _explain_stop(lines, files.output),
    ):
        yield lines, advance


def _ignore(count: int) -> None:
    pass


def _texts_are_seen(files: GenerationFiles) -> bool:
    """Whether the texts appear on a terminal."""
    return files.output is None and sys.stdout.isatty()


def _show(generated: GeneratedText, files: GenerationFiles) -> str:
    """The line of a text; with --trace, its steps are printed before it."""
    if files.as_json:
        return generated.as_json()
    for step in generated.trace:
        print_text(f"  t={step.time:.3f}  {step.text}")
    return generated.as_text("\n" if _texts_are_seen(files) else "\t")


@contextmanager
def _explain_stop(lines: OutputLines, output: Path | None) -> Iterator[None]:
    """Context manager: Ctrl-C says what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if output is None:
            raise Stopped("Stopped.") from stop
        if not lines.written:
            raise Stopped("Stopped before any batch was finished; a smaller --batch keeps more.") from stop
        raise Stopped(
            f"Stopped: {lines.written:,} texts are kept in {output}.draft; add --resume to go on."
        ) from stop
