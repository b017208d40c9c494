"""`noise2text train`: train a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noise2text.cli.option_groups import OptionGroup
from noise2text.cli.options import (
    FILES,
    PAIRS_OR_PREPARED,
    SETTINGS,
    ConfigOption,
    Device,
    FieldsOption,
    SetOption,
    SkipBadOption,
    app,
)
from noise2text.core.errors import Problem

__all__ = ["train"]


class TrainingFiles(OptionGroup):
    """The pairs, and the folder of the run."""

    panel = FILES
    out: Annotated[Path, typer.Option(help="The folder of the run, which becomes the model.")]
    train: Annotated[
        str | None,
        typer.Option(help=f"Training pairs: {PAIRS_OR_PREPARED} With --resume, by default those of the run."),
    ] = None
    valid: Annotated[
        str | None,
        typer.Option(
            help=f"Validation pairs: {PAIRS_OR_PREPARED} By default 5 % of the training pairs are set aside, "
            "at most 1,000."
        ),
    ] = None
    fields: FieldsOption = None
    skip_bad: SkipBadOption = False
    logger: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Send the metrics to tensorboard, wandb or trackio, too; may be repeated. A resumed run "
            "keeps its loggers.",
        ),
    ] = None


class TrainingSettings(OptionGroup):
    """The settings of the recipe: a preset, changed by a file, changed by assignments."""

    panel = SETTINGS
    preset: Annotated[str | None, typer.Option(help="The name of published settings, or tiny.")] = None
    config: ConfigOption = None
    assignments: SetOption = None


class Resuming(OptionGroup):
    """Whether a run in the folder is continued."""

    panel = "Resuming"
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Resume although the corpus or a setting has changed.")
    ] = False


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="The recipe, e.g. difformer; `noise2text recipes` lists them.")
    ],
    **options: Annotated[Any, TrainingFiles, TrainingSettings, Resuming, Device],
) -> None:
    """Train a model on pairs of texts.

    `noise2text config RECIPE` lists the settings that --set changes, with their values.
    """
    from noise2text.commands.display import TerminalDisplay
    from noise2text.commands.train import train as run
    from noise2text.core.command_line import parse_assignments
    from noise2text.data.corpus_paths import with_fields

    files, settings, resuming = TrainingFiles(options), TrainingSettings(options), Resuming(options)
    train, valid = files.train, files.valid
    if train is None:
        train, earlier_valid = _read_files(files.out, resume=resuming.resume)
        valid = valid or earlier_valid
    loggers = {"run.loggers": ",".join(files.logger)} if files.logger else {}
    with TerminalDisplay.open() as display:
        run(
            recipe,
            train=with_fields(train, files.fields),
            valid=None if valid is None else with_fields(valid, files.fields),
            out=files.out,
            preset=settings.preset,
            config=settings.config,
            changes=parse_assignments(settings.assignments) | loggers,
            resume=resuming.resume,
            allow_changes=resuming.allow_changes,
            skip_bad=files.skip_bad,
            device=Device(options).device,
            display=display,
        )


def _read_files(out: Path, *, resume: bool) -> tuple[str, str]:
    """The training and validation pairs of the run that is resumed."""
    if not resume:
        raise Problem("There are no training pairs: give a file with --train.")
    try:
        from noise2text.core.json_files import read_json_object

        run_info = read_json_object(out / "run.json")
        return str(run_info["train"]), str(run_info["valid"])
    except (Problem, KeyError) as error:
        raise Problem(f"{out} has no run that can be resumed: give --train to start one.") from error
