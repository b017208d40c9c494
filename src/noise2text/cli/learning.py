"""Commands that make a model, or what one learns from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.options import (
    PAIRS_OR_PREPARED,
    ConfigOption,
    DeviceOption,
    SetOption,
    SkipBadOption,
    app,
    synth,
)

__all__ = ["dates", "days", "demo", "distill", "prepare", "train", "train_classifier"]


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="The system, e.g. difformer; `noise2text recipes` lists them.")
    ],
    train: Annotated[str, typer.Option(help=f"Training pairs: {PAIRS_OR_PREPARED}")],
    valid: Annotated[str, typer.Option(help=f"Validation pairs: {PAIRS_OR_PREPARED}")],
    out: Annotated[Path, typer.Option(help="The run's folder; it becomes the model.")],
    preset: Annotated[str | None, typer.Option(help="Published settings by name, or tiny.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    skip_bad: SkipBadOption = False,
    device: DeviceOption = None,
) -> None:
    """Train a system on pairs."""
    from noise2text.commands.display import TerminalDisplay
    from noise2text.commands.train import train as run
    from noise2text.core.config import parse_assignments

    with TerminalDisplay.open() as display:
        run(
            recipe,
            train=train,
            valid=valid,
            out=out,
            preset=preset,
            config=config,
            changes=parse_assignments(assignments),
            resume=resume,
            skip_bad=skip_bad,
            device=device,
            display=display,
        )


@app.command()
def train_classifier(
    model: Annotated[Path, typer.Argument(help="The folder of the diffusion model that it will steer.")],
    train: Annotated[str, typer.Option(help="JSON Lines with trg (or text) and label.")],
    valid: Annotated[str, typer.Option(help="The same, of other texts.")],
    out: Annotated[Path, typer.Option(help="The classifier's folder.")],
    assignments: SetOption = None,
    device: DeviceOption = None,
) -> None:
    """Train a classifier of a model's noisy texts, for generate --guide."""
    from noise2text.commands.display import TerminalDisplay
    from noise2text.commands.train_classifier import train_classifier as run
    from noise2text.core.config import parse_assignments

    with TerminalDisplay.open() as display:
        run(
            model,
            train=train,
            valid=valid,
            out=out,
            changes=parse_assignments(assignments),
            device=device,
            display=display,
        )


@app.command()
def prepare(
    train: Annotated[str, typer.Option(help="Training pairs.")],
    valid: Annotated[str, typer.Option(help="Validation pairs.")],
    out: Annotated[Path, typer.Option(help="The folder to write; give OUT/train and OUT/valid to train.")],
    recipe: Annotated[str, typer.Option(help="The recipe whose presets are meant.")] = "difformer",
    preset: Annotated[str | None, typer.Option(help="Whose tokenizer and limits to use.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    skip_bad: SkipBadOption = False,
) -> None:
    """Tokenise pairs into memory-mapped files, once for many runs."""
    from noise2text.commands.run_data import load_data
    from noise2text.commands.run_setup import build_config, require_empty
    from noise2text.core.config import parse_assignments
    from noise2text.models.registry import find_recipe

    settings = build_config(find_recipe(recipe), preset, config, parse_assignments(assignments))
    require_empty(out)
    data = load_data(train, valid, out, settings, skip_bad=skip_bad, show_line=print)
    print(f"{out}: {len(data.train):,} training and {len(data.valid):,} validation pairs")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def distill(
    context: typer.Context,
    teacher: Annotated[Path, typer.Argument(help="The model folder of the teacher, e.g. a transformer.")],
    input: Annotated[str, typer.Option(help="A corpus, whose sources it answers; its targets are not read.")],
    output: Annotated[Path, typer.Option(help="The corpus to write: JSON Lines with src and trg.")],
    assignments: SetOption = None,
    seed: Annotated[int, typer.Option(help="Decides the noise, where the teacher has any.")] = 0,
    batch: Annotated[int, typer.Option(help="Sentences at once; the texts do not depend on it.")] = 32,
    device: DeviceOption = None,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or auto.")] = "auto",
) -> None:
    """Write a corpus of a teacher's texts to the sources of another; goes on where it was stopped.

    Every generation setting of the teacher is an option, e.g. --beam 5. Under torchrun each process takes its
    part.
    """
    from noise2text.commands.display import SilentDisplay, TerminalDisplay
    from noise2text.commands.distill import DistillGroup
    from noise2text.commands.distill import distill as run
    from noise2text.core.config import parse_assignments, parse_options

    with TerminalDisplay.open() as display:
        run(
            teacher,
            input=input,
            output=output,
            overrides=parse_options(context.args) | parse_assignments(assignments),
            seed=seed,
            batch=batch,
            device=device,
            precision=precision,
            display=display if DistillGroup.from_environment().rank == 0 else SilentDisplay(),
        )


@synth.command()
def dates(
    out: Annotated[Path, typer.Option(help="The folder for train.jsonl, valid.jsonl and test.jsonl.")],
    pairs: Annotated[int, typer.Option(help="How many training pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Decides which dates.")] = 0,
) -> None:
    """Written-out dates in several formats and languages, and their ISO form."""
    from noise2text.data.dates import write_dates

    write_dates(out, pairs=pairs, seed=seed)
    print(f"{out}: {pairs:,} training pairs, and validation and test pairs of other dates")


@synth.command()
def days(
    out: Annotated[Path, typer.Option(help="The folder for train.jsonl, valid.jsonl and test.jsonl.")],
    pairs: Annotated[int, typer.Option(help="How many training pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Decides which days.")] = 0,
) -> None:
    """A year and any one of its days, labelled with the month: a task for guidance."""
    from noise2text.data.dates import write_days

    write_days(out, pairs=pairs, seed=seed)
    print(f"{out}: {pairs:,} training pairs, and validation and test pairs of other days")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to leave the model and its figures.")] = Path("runs/demo"),
    assignments: SetOption = None,
) -> None:
    """Learn to read dates in a few minutes: synthesise, train, generate, evaluate."""
    from noise2text.commands.demo import demo as run
    from noise2text.core.config import parse_assignments

    run(out, changes=parse_assignments(assignments))
