"""`noise2text experiment`: rerun an experiment of the papers."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noise2text.cli.folding import print_folded
from noise2text.cli.option_groups import OptionGroup
from noise2text.cli.options import SETTINGS, Device, JsonOption, SetOption, app
from noise2text.core.errors import Problem

if TYPE_CHECKING:
    from noise2text.experiments.corpus_files import CorpusFiles

__all__ = ["experiment"]


class ScaleName(StrEnum):
    """The sizes of an experiment."""

    tiny = "tiny"
    full = "full"


class Size(OptionGroup):
    """How large the experiment is."""

    panel = "Size"
    scale: Annotated[
        ScaleName, typer.Option(help="tiny: dates, on two cores; full: the paper's settings, your files.")
    ] = ScaleName.tiny
    seeds: Annotated[int, typer.Option(help="Seeds per arm: 0, 1, …")] = 1
    sentences: Annotated[int | None, typer.Option(help="Use only this many test sentences.")] = None
    only: Annotated[
        str | None, typer.Option(help="Run only the arms whose name contains this, e.g. DiffuSeq.")
    ] = None


class ExperimentFiles(OptionGroup):
    """What the full scale reads."""

    panel = "Files of --scale full"
    train: Annotated[str | None, typer.Option(help="Training pairs.")] = None
    valid: Annotated[str | None, typer.Option(help="Validation pairs.")] = None
    test: Annotated[str | None, typer.Option(help="Test pairs.")] = None
    corpora: Annotated[
        list[str] | None,
        typer.Option("--corpus", help="A training corpus for models that have their own: distilled=FILE."),
    ] = None
    pretrained: Annotated[
        list[str] | None, typer.Option(help="The folder of a pre-trained model: gpt2=FOLDER.")
    ] = None

    def find(self, scale: str) -> CorpusFiles | None:
        """The corpora of the full scale; None for the tiny one, which takes no files."""
        from noise2text.experiments.corpus_files import CorpusFiles

        if self.train and self.valid and self.test and scale == "full":
            return CorpusFiles(self.train, self.valid, self.test, _parse_files("--corpus", self.corpora))
        if scale == "full" or any(vars(self).values()):
            raise Problem("--scale full needs --train, --valid and --test, and --scale tiny takes no files.")
        return None


class ExperimentSettings(OptionGroup):
    """What is changed in all models, and measured of them."""

    panel = SETTINGS
    preset: Annotated[
        str | None,
        typer.Option(help="The dataset of a table that has several, or the preset of all models (full)."),
    ] = None
    metrics: Annotated[
        str | None, typer.Option(help="More metrics of `evaluate`, e.g. sari,bertscore=FOLDER,div_4.")
    ] = None
    assignments: SetOption = None


@app.command()
def experiment(
    name: Annotated[
        str | None, typer.Argument(help="The experiment, e.g. difformer-losses; --list lists all.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for models and tables; experiments in one folder share models.")
    ] = Path("runs/experiments"),
    list_all: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: JsonOption = False,
    **options: Annotated[Any, Size, ExperimentFiles, ExperimentSettings, Device],
) -> None:
    """Rerun an experiment of the papers.

    It trains and evaluates all arms and writes one table, which grows with each arm; the same command
    continues where it stopped.

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
    from noise2text.experiments.result_table import to_markdown
    from noise2text.experiments.run_experiment import run_experiment

    size, files, settings = Size(options), ExperimentFiles(options), ExperimentSettings(options)
    corpora = files.find(size.scale)
    with TerminalDisplay.open() as display:
        found = run_experiment(
            find_experiment(name),
            out,
            **vars(size),
            files=corpora,
            changes=parse_assignments(settings.assignments),
            preset=settings.preset,
            metrics=settings.metrics,
            pretrained=_parse_files("--pretrained", files.pretrained),
            device=Device(options).device,
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
