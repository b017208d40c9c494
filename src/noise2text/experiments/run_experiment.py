"""Run an experiment: check what was asked for, fill the grid, and write its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noise2text.commands.display import Display, SilentDisplay
from noise2text.core.devices import find_device
from noise2text.core.errors import Problem
from noise2text.core.files import write_text_file
from noise2text.core.locks import lock_file
from noise2text.experiments.corpus_files import CorpusFiles, ensure_dates_corpus
from noise2text.experiments.experiment import Arm, Experiment
from noise2text.experiments.grid import Grid
from noise2text.experiments.measures import TextMeasures
from noise2text.experiments.result_table import tabulate, to_latex, to_markdown

__all__ = ["run_experiment"]


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    scale: str = "tiny",
    seeds: int = 1,
    files: CorpusFiles | None = None,
    changes: Mapping[str, Any] | None = None,
    preset: str | None = None,
    only: str | None = None,
    metrics: str | None = None,
    pretrained: Mapping[str, str] | None = None,
    sentences: int | None = None,
    device: str | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """The content of table.json, after training, generating and measuring what is missing.

    The table is written after each arm, with what has been measured until then.

    Args:
        experiment: the table, such as `find_experiment("difformer-main")`.
        out: the folder of models and results, which experiments may share.
        scale: tiny (dates) or full (the paper's presets with your files).
        seeds: how many seeds each arm has: 0, 1, …
        files: the corpora of the full scale.
        changes: training settings for all models that have them.
        preset: the dataset of a table of several, or else the preset of all models.
        only: run only the arms whose name contains this; the table has all that were ever run.
        metrics: further metrics of `evaluate`, by name and with commas between them.
        pretrained: the folders of pre-trained models by name, such as gpt2.
        sentences: use only so many test sentences.
        device: where to train and generate.
        display: who is told about the progress.
    """
    out = out.resolve()  # so that a resumed run finds the same files from another working directory
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"{out} cannot be created: {error.strerror}; choose another folder.") from error
    experiment = experiment.with_preset(preset, scale)
    experiment.validate(scale, changes or {})
    arms = _choose_arms(experiment, only)
    measures = TextMeasures(experiment.measures_at(scale), metrics)
    find_device(device)  # a bad device would fail in every arm
    if seeds < 1 or (sentences is not None and sentences < 1):
        raise Problem("An experiment needs at least one seed and one test sentence.")
    files = files or ensure_dates_corpus(out / "corpus", scale)
    _check_names(experiment, files, pretrained or {})
    limit = sentences or (experiment.sentences if scale == "tiny" else None)
    display = display or SilentDisplay()
    grid = Grid(experiment, out, scale, files, dict(changes or {}), measures, limit, device, display)
    grid.pretrained = dict(pretrained or {})
    for line in grid.run_all([(arm, seed) for seed in range(seeds) for arm in arms]):
        found = _write_table(grid, seeds)
        display.show_line(line)
    return found


def _choose_arms(experiment: Experiment, only: str | None) -> list[Arm]:
    """The arms whose name contains the words, or all of them."""
    found = [arm for arm in experiment.arms if (only or "").lower() in arm.name.lower()]
    if not found:
        names = "; ".join(arm.name for arm in experiment.arms)
        raise Problem(f"No arm of {experiment.name} has {only!r} in its name. They are: {names}.")
    return found


def _write_table(grid: Grid, seeds: int) -> dict[str, Any]:
    """The content of table.json, of all arms that have been run; written as JSON, Markdown and LaTeX."""
    with lock_file(grid.results_dir / "table", wait=True):
        records = grid.load_results(seeds)
        found = tabulate(grid.experiment, records, scale=grid.scale, more=grid.measures.added)
        as_json = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
        pages = {"json": as_json, "md": to_markdown(found), "tex": to_latex(found)}
        for kind, page in pages.items():
            write_text_file(grid.results_dir / f"table.{kind}", page)
    return found


def _check_names(experiment: Experiment, files: CorpusFiles, pretrained: Mapping[str, str]) -> None:
    """Raise a Problem if the user names a corpus or a pre-trained model that no model of it uses."""
    corpora = {model.corpus for model in experiment.models()} - {"train"}
    folders = {model.pretrained for model in experiment.models()} - {""}
    for kind, given, known in (("corpus", files.more, corpora), ("pre-trained model", pretrained, folders)):
        for name in set(given) - known:
            names = f"there are {', '.join(sorted(known))}" if known else "it uses none"
            raise Problem(f"{experiment.name} has no {kind} named {name!r}; {names}.")
