"""The grid of an experiment: every arm with every seed, resumable, one JSON file each.

    FOLDER/corpus/                         the dates, for the tiny scale
    FOLDER/models/RECIPE-…/                trained once for all arms and experiments that share the model
    FOLDER/EXPERIMENT/SCALE/arms/….json    the measurements of an arm with a seed
    FOLDER/EXPERIMENT/SCALE/table.md       and .json, .tex

The folder of a model is named after a hash of everything that decides it; the JSON file of an arm has a hash
of its model, settings and test set. So only what has changed is computed again. A grid that was killed
continues, training from its last checkpoint. An arm that fails records the error in its JSON file, does not
affect the others, and is tried again by the next run. Several processes may work in one folder.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from noise2text.commands.display import Display, SilentDisplay
from noise2text.commands.distill import distill
from noise2text.commands.train import train
from noise2text.core.config import get_setting
from noise2text.core.devices import find_device
from noise2text.core.errors import Problem, Stopped
from noise2text.core.files import write_text_file
from noise2text.core.locks import lock_file
from noise2text.data.corpus import Pair, read_pairs
from noise2text.experiments.corpus_files import CorpusFiles, ensure_dates_corpus, hash_corpus
from noise2text.experiments.experiment import Arm, Experiment, ModelSpec, TrainedSetting, hash_value
from noise2text.experiments.measures import measure_model, measure_texts
from noise2text.experiments.result_table import tabulate, to_latex, to_markdown
from noise2text.models import Model
from noise2text.models.folder import load, load_config

__all__ = ["Grid", "run_experiment"]

POLL_SECONDS = 2.0  # between checks whether another process has finished with a model
TRAINED_FILE = "trained.json"  # in a model's folder: marks it as finished, with the training time


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    scale: str = "tiny",
    seeds: int = 1,
    files: CorpusFiles | None = None,
    changes: Mapping[str, Any] | None = None,
    sentences: int | None = None,
    device: str | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """The content of table.json, after training, generating and measuring what is missing."""
    out = out.resolve()  # so that a resumed run finds the same files from another working directory
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"{out} cannot be created: {error.strerror}; choose another folder.") from error
    experiment.validate(scale, changes or {})
    find_device(device)  # a bad device would fail in every arm
    if seeds < 1 or (sentences is not None and sentences < 1):
        raise Problem("An experiment needs at least one seed and one test sentence.")
    files = files or ensure_dates_corpus(out / "corpus", scale)
    limit = sentences or (experiment.sentences if scale == "tiny" else None)
    grid = Grid(experiment, out, scale, files, dict(changes or {}), limit, device, display or SilentDisplay())
    jobs = [(arm, seed) for seed in range(seeds) for arm in experiment.arms]
    grid.run_all(jobs)
    found = tabulate(experiment, [grid.load_result(arm, seed) for arm, seed in jobs], scale=scale)
    with lock_file(grid.results_dir / "table", wait=True):
        write_text_file(
            grid.results_dir / "table.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n"
        )
        write_text_file(grid.results_dir / "table.md", to_markdown(found))
        write_text_file(grid.results_dir / "table.tex", to_latex(found))
    return found


@dataclass
class Grid:
    """An experiment that runs in a folder."""

    experiment: Experiment
    out: Path
    scale: str
    files: CorpusFiles
    changes: dict[str, Any]
    sentences: int | None
    device: str | None
    display: Display
    failed: dict[Path, str] = field(default_factory=dict)  # models whose training failed in this run
    loaded: tuple[Path, Model] | None = None  # the last loaded model, which the next arm may share
    started: float = field(default_factory=time.time)

    @cached_property
    def corpus_hashes(self) -> dict[str, str]:
        """The hashes of the corpora."""
        return {name: hash_corpus(file) for name, file in vars(self.files).items()}

    @property
    def results_dir(self) -> Path:
        """The folder of the results."""
        return self.out / self.experiment.name / self.scale

    def run_all(self, jobs: Sequence[tuple[Arm, int]]) -> None:
        """Measure all arms; those whose model is locked by another process come later."""
        waiting = list(enumerate(jobs, start=1))
        while waiting:
            later = []
            for number, (arm, seed) in waiting:
                with lock_file(self._model_folder(arm.model, seed), wait=False) as acquired:
                    if not acquired:
                        later.append((number, (arm, seed)))
                        continue
                    outcome = self.run_arm(arm, seed)
                self.display.show_line(f"[{number} of {len(jobs)}] {arm.name}, seed {seed}: {outcome}")
            if later == waiting:
                time.sleep(POLL_SECONDS)
            waiting = later

    def run_arm(self, arm: Arm, seed: int) -> str:
        """A summary of an arm, which is measured unless that was done."""
        if self._is_done(arm, seed):
            return "was done already"
        record: dict[str, Any] = {"arm": arm.name, "seed": seed, "identity": self._fingerprint(arm, seed)}
        try:
            record |= self._measure(arm, seed)
        except (Stopped, KeyboardInterrupt) as stop:
            raise Stopped("Stopped; run the same command to continue.") from stop
        except Exception as error:  # any error must not affect the other arms
            kind = "" if isinstance(error, Problem) else f"{type(error).__name__}: "
            record["error"] = kind + " ".join(str(error).split())
        write_text_file(self._result_path(arm, seed), json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        if "error" in record:
            return f"failed: {record['error']}"
        shown = {name: record["numbers"][name] for name in ("bleu", "exact")}
        return "  ".join(f"{name} {value:.2f}" for name, value in shown.items())

    def _is_done(self, arm: Arm, seed: int) -> bool:
        """Whether an arm was measured, or has failed in another process since this run started."""
        try:
            found = self.load_result(arm, seed)
        except _NoResult:
            return False
        return "numbers" in found or self._result_path(arm, seed).stat().st_mtime >= self.started

    def load_result(self, arm: Arm, seed: int) -> dict[str, Any]:
        """The record of an arm: its measurements, or the error."""
        try:
            found: dict[str, Any] = json.loads(self._result_path(arm, seed).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _NoResult from error
        if found.get("identity") != self._fingerprint(arm, seed):
            raise _NoResult
        return found

    def _measure(self, arm: Arm, seed: int) -> dict[str, Any]:
        folder = self.ensure_trained(arm.model, seed)
        _, config = load_config(folder)
        if self.loaded is None or self.loaded[0] != folder:
            self.loaded = folder, load(folder, device=self.device)
        model, pairs = self.loaded[1], self._test_pairs()
        generation_changes = {
            name: get_setting(config, value.setting) if isinstance(value, TrainedSetting) else value
            for name, value in arm.generation_settings(self.scale).items()
        }
        started = time.perf_counter()
        output = model.generate(
            [pair.src for pair in pairs], seed=seed, batch=self.experiment.batch, **generation_changes
        )
        seconds = time.perf_counter() - started
        numbers, signatures = measure_texts(
            output, pairs, model=model, requested_length=generation_changes.get("length"), seconds=seconds
        )
        facts = json.loads((folder / TRAINED_FILE).read_text())
        return {
            "numbers": numbers | measure_model(model, config, pairs, facts),
            "signatures": signatures,
            "model": folder.name,
            "generation": generation_changes,
            "sentences": len(pairs),
            "texts": output.texts[:5],
        }

    def ensure_trained(self, model: ModelSpec, seed: int) -> Path:
        """The folder of the trained model; it and its dependencies are trained if they are missing."""
        folder = self._model_folder(model, seed)
        if (folder / TRAINED_FILE).exists():
            return folder
        if folder in self.failed:
            raise Problem(self.failed[folder])
        try:
            self._train(model, seed, folder)
        except (Stopped, KeyboardInterrupt):
            raise
        except Exception as error:
            self.failed[folder] = str(error)
            raise
        return folder

    def _train(self, model: ModelSpec, seed: int, folder: Path) -> None:
        changes = self._training_changes(model, seed)
        corpus = self._distill_corpus(model.teacher, seed) if model.teacher else self.files.train
        if model.embeddings:
            with lock_file(self._model_folder(model.embeddings, seed), wait=True):
                changes["embeddings_from"] = str(self.ensure_trained(model.embeddings, seed))
        self.display.show_line(f"training {folder.name}: {_format_changes(changes)}")
        seconds_file = folder / "spent.json"
        earlier_seconds = json.loads(seconds_file.read_text()) if seconds_file.exists() else 0.0
        started = time.monotonic()
        try:
            train(
                model.recipe,
                train=corpus,
                valid=self.files.valid,
                out=folder,
                preset=self.experiment.preset(model, self.scale),
                changes=changes,
                resume=folder.exists(),
                device=self.device,
                display=_ProgressOnly(self.display),
            )
        finally:
            seconds = earlier_seconds + time.monotonic() - started
            if folder.exists():
                write_text_file(seconds_file, json.dumps(seconds))
        write_text_file(folder / TRAINED_FILE, json.dumps({"training_seconds": seconds}))

    def _distill_corpus(self, teacher: ModelSpec, seed: int) -> str:
        """The corpus with a teacher's texts for the training sources."""
        with lock_file(self._model_folder(teacher, seed), wait=True):
            folder = self.ensure_trained(teacher, seed)
            output = folder / "distilled.jsonl"
            if not output.exists():
                self.display.show_line(f"distilling the training corpus with {folder.name}")
                distill(
                    folder,
                    input=self.files.train,
                    output=output,
                    seed=seed,
                    batch=256,
                    device=self.device,
                    display=_ProgressOnly(self.display),
                )
        return str(output)

    def _training_changes(self, model: ModelSpec, seed: int) -> dict[str, Any]:
        return self.experiment.changes(model, self.scale, self.changes) | {"seed": seed}

    def _model_folder(self, model: ModelSpec, seed: int) -> Path:
        return self.out / "models" / f"{model.recipe}-{hash_value(self._model_key(model, seed))}"

    def _model_key(self, model: ModelSpec, seed: int) -> list[Any]:
        """Everything that decides a model."""
        dependencies = [other and self._model_key(other, seed) for other in (model.teacher, model.embeddings)]
        corpus = [self.corpus_hashes[name] for name in ("train", "valid")]
        preset = self.experiment.preset(model, self.scale)
        return [model.recipe, preset, self._training_changes(model, seed), corpus, dependencies]

    def _fingerprint(self, arm: Arm, seed: int) -> str:
        generation_changes = {name: str(value) for name, value in arm.generation_settings(self.scale).items()}
        return hash_value(
            [
                self._model_key(arm.model, seed),
                generation_changes,
                self.corpus_hashes["test"],
                self.sentences,
                self.experiment.batch,
            ]
        )

    def _result_path(self, arm: Arm, seed: int) -> Path:
        number = self.experiment.arms.index(arm) + 1
        slug = re.sub(r"[^a-z0-9.]+", "-", arm.name.lower()).strip("-")
        return self.results_dir / "arms" / f"{number:02d}-{slug}-seed-{seed}.json"

    def _test_pairs(self) -> list[Pair]:
        return list(islice(read_pairs(self.files.test), self.sentences))


class _NoResult(Exception):
    """Raised if an arm has no result, or only one with other settings."""


class _ProgressOnly:
    """The progress of a part without its lines: the grid prints one line per part."""

    def __init__(self, display: Display) -> None:
        self.start, self.progress = display.start, display.progress

    def show_line(self, line: str) -> None:
        pass


def _format_changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())
