"""`noise2text experiment`: rerun an experiment of the papers."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from noise2text.cli.folding import print_folded
from noise2text.cli.options import DeviceOption, JsonOption, SetOption, app
from noise2text.core.errors import Problem

__all__ = ["experiment"]


class ScaleName(StrEnum):
    """The sizes of an experiment."""

    tiny = "tiny"
    full = "full"


@app.command()
def experiment(
    name: Annotated[
        str | None, typer.Argument(help="The experiment, e.g. difformer-losses; --list lists all.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for models and tables; experiments in one folder share models.")
    ] = Path("runs/experiments"),
    scale: Annotated[
        ScaleName, typer.Option(help="tiny: dates, on two cores; full: the paper's settings, your files.")
    ] = ScaleName.tiny,
    seeds: Annotated[int, typer.Option(help="Seeds per arm: 0, 1, …")] = 1,
    train: Annotated[str | None, typer.Option(help="Training pairs, for --scale full.")] = None,
    valid: Annotated[str | None, typer.Option(help="Validation pairs, for --scale full.")] = None,
    test: Annotated[str | None, typer.Option(help="Test pairs, for --scale full.")] = None,
    corpora: Annotated[
        list[str] | None,
        typer.Option("--corpus", help="A training corpus for models that have their own: distilled=FILE."),
    ] = None,
    pretrained: Annotated[
        list[str] | None,
        typer.Option(help="The folder of a pre-trained model of --scale full: gpt2=FOLDER."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="The dataset of a table that has several, or the preset of all models (full)."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="More metrics of `evaluate`, e.g. sari,bertscore=FOLDER,div_4.")
    ] = None,
    sentences: Annotated[int | None, typer.Option(help="Use only this many test sentences.")] = None,
    assignments: SetOption = None,
    device: DeviceOption = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Rerun an experiment of the papers.

    It trains and evaluates all arms and writes one table; the same command continues where it stopped.

    --set changes a training setting in all models that have it, e.g. --set optim.steps=1000.
    """
    from noise2text.experiments import EXPERIMENTS, find_experiment

    if list_all:
        _list(as_json)
        return
    if name is None:
        raise Problem(f"Give the name of an experiment: {', '.join(EXPERIMENTS)}.")
    from noise2text.commands.display import TerminalDisplay
    from noise2text.core.command_line import parse_assignments
    from noise2text.experiments.corpus_files import CorpusFiles
    from noise2text.experiments.result_table import to_markdown
    from noise2text.experiments.run_experiment import run_experiment

    files = None
    if train and valid and test and scale == "full":
        files = CorpusFiles(train, valid, test, _parse_files("--corpus", corpora))
    elif scale == "full" or train or valid or test or corpora or pretrained:
        raise Problem("--scale full needs --train, --valid and --test, and --scale tiny takes no files.")
    with TerminalDisplay.open() as display:
        found = run_experiment(
            find_experiment(name),
            out,
            scale=scale,
            seeds=seeds,
            files=files,
            changes=parse_assignments(assignments),
            preset=preset,
            metrics=metrics,
            pretrained=_parse_files("--pretrained", pretrained),
            sentences=sentences,
            device=device,
            display=display,
        )
    page = json.dumps(found, indent=2, ensure_ascii=False) + "\n" if as_json else to_markdown(found)
    print(page, end="")
    if not any(row["means"] for row in found["rows"]):
        raise Problem(f"Every arm of {name} failed; the table says why.")


def _parse_files(option: str, assignments: list[str] | None) -> dict[str, str]:
    """The files or folders by name."""
    found = {}
    for assignment in assignments or ():
        name, equals, file = assignment.partition("=")
        if not (name and equals and file):
            raise Problem(f"{option} is NAME=PATH, not {assignment!r}.")
        found[name] = file
    return found


def _list(as_json: bool) -> None:
    from noise2text.experiments import EXPERIMENTS

    if as_json:
        facts = [
            {
                "name": experiment.name,
                "paper": experiment.paper,
                "table": experiment.table,
                "summary": experiment.summary,
                "arms": [arm.name for arm in experiment.arms],
                "measures": list(experiment.measures),
                "presets": list(experiment.columns),
            }
            for experiment in EXPERIMENTS.values()
        ]
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for experiment in EXPERIMENTS.values():
        print_folded(f"{experiment.name}\n  {experiment.summary}\n  {experiment.paper}, {experiment.table}")
