"""Commands that write texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from noise2text.cli.options import DeviceOption, SetOption, app
from noise2text.core.errors import Problem

__all__ = ["generate", "sample"]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def generate(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    input: Annotated[
        str, typer.Option(help="One text a line, JSON Lines with src, or - for standard input.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="Where to write one text a line; standard output without it.")
    ] = None,
    assignments: SetOption = None,
    guide: Annotated[
        str | None, typer.Option(help="A classifier's folder, which steers every text to --class.")
    ] = None,
    label: Annotated[str | None, typer.Option("--class", help="The class that --guide steers to.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the noise.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences at once; the texts do not depend on it.")] = 32,
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Print the text at every step; with --json it is part of the line."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON Lines: each text with its candidates and scores.")
    ] = False,
    teacher: Annotated[
        Path | None, typer.Option(help="An autoregressive model that picks, with --select teacher.")
    ] = None,
    likelihood: Annotated[
        str, typer.Option(help="The teacher's: mean a token, or sum of the tokens'.")
    ] = "mean",
    copies: Annotated[
        bool,
        typer.Option(help="Whether a text may be its source again, if there is another candidate."),
    ] = True,
    device: DeviceOption = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 (on a CPU) or auto.")] = "auto",
) -> None:
    """Generate a text for each line of the input.

    Every generation setting of the model is an option, too, e.g. --steps 10 --length-beam 3; `noise2text
    inspect MODEL` lists them.
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
    _refuse_overwriting_input(output, input)
    with _open_output(output) as write, count_progress("sentences") as count:
        for line in generate_texts(
            loaded,
            texts,
            seed=seed,
            batch=batch,
            trace=trace,
            overrides=overrides,
            selector=selector,
            show_line=_warn,
        ):
            for step in () if as_json else line.trace:
                print(f"  t={step.time:.3f}  {step.text}")
            write(line.as_json() if as_json else line.as_text())
            count()


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sample(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder of a model of pairs, e.g. diffusion-lm.")],
    count: Annotated[int, typer.Option(help="How many pairs.")],
    source: Annotated[
        str, typer.Option(help="A template for the source, e.g. '7 april ___{4}'; free without it.")
    ] = "",
    target: Annotated[str, typer.Option(help="A template for the target; free without it.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write JSON Lines with src and trg; standard output without it."),
    ] = None,
    assignments: SetOption = None,
    seed: Annotated[int, typer.Option(help="Decides the noise.")] = 0,
    batch: Annotated[int, typer.Option(help="Pairs at once; the texts do not depend on it.")] = 32,
    device: DeviceOption = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 (on a CPU) or auto.")] = "auto",
) -> None:
    """Write pairs of source and target from noise alone, or fill in what templates leave open."""
    from noise2text.core.config import parse_assignments, parse_options
    from noise2text.models.folder import load

    if count < 1:
        raise Problem(f"The count must be at least 1 pair, not {count}.")
    loaded = load(model, device=device, precision=precision)
    settings = parse_options(context.args) | parse_assignments(assignments)
    with _open_output(output) as write:
        for src, trg in loaded.generate_pairs(
            count, source=source, target=target, seed=seed, batch=batch, **settings
        ):
            write(json.dumps({"src": src, "trg": trg}, ensure_ascii=False))


def _warn(line: str) -> None:
    print(f"noise2text: {line}", file=sys.stderr)


def _refuse_overwriting_input(output: Path | None, input: str) -> None:
    """Refuse to write over what is still to be read."""
    from noise2text.data.text_files import split_corpus_path

    if output is None or not output.exists():
        return
    if any(Path(part).exists() and output.samefile(part) for part in split_corpus_path(input)):
        raise Problem(f"{output} is the input, too; name another file for the output.")


@contextmanager
def _open_output(output: Path | None) -> Iterator[Any]:
    """A function that writes one line, flushed, so that what is done is not lost.

    What the file held before goes with the first line, or at the end: a mistake found before costs nothing,
    and leaves no empty file.
    """
    if output is None:
        yield lambda text: print(text, flush=True)
        return
    if output.suffix == ".gz":
        raise Problem(f"{output} would be plain text under another name: leave out the .gz.")
    new = not output.exists()
    try:
        file = output.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise Problem(f"{output} cannot be written: {error.strerror}.") from error
    old = output.is_file()  # what is no file, such as a pipe, has nothing to lose

    def write(text: str) -> None:
        nonlocal old
        if old:
            file.truncate(0)
            old = False
        print(text, file=file, flush=True)

    try:
        with file:
            yield write
            if old:
                file.truncate(0)
    except BaseException:
        if new and old:  # nothing was written
            output.unlink()
        raise
