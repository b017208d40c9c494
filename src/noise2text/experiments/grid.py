"""The grid of an experiment: every arm with every seed, resumable, one JSON file each.

    FOLDER/corpus/                         the dates, for the tiny scale; shuffled pairs
    FOLDER/models/RECIPE-…/                trained once for all arms and experiments that share the model
    FOLDER/EXPERIMENT/SCALE/arms/….json    the measurements of an arm with a seed
    FOLDER/EXPERIMENT/SCALE/texts/….jsonl  what it generated
    FOLDER/EXPERIMENT/SCALE/table.md       and .json, .tex

With a preset of the user's, the folder is EXPERIMENT-PRESET.

The folder of a model is named after a hash of everything that decides it; the JSON file of an arm has a hash
of its model, settings and test set. So only what has changed is computed again, and further metrics are
computed from the texts that are there. A grid that was killed continues, training from its last checkpoint.
An arm that fails records the error in its JSON file, does not affect the others, and is tried again by the
next run. Several processes may work in one folder.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from noise2text.commands.display import Display
from noise2text.commands.distill import distill
from noise2text.commands.train import train
from noise2text.core.config import get_setting
from noise2text.core.errors import Problem, Stopped
from noise2text.core.files import write_text_file
from noise2text.core.json_files import read_json_object
from noise2text.core.locks import lock_file
from noise2text.data.corpus import Pair, read_pairs
from noise2text.experiments.arm_texts import GeneratedArm, read_arm_texts, write_arm_texts
from noise2text.experiments.corpus_files import CorpusFiles, ensure_shuffled_corpus, hash_corpus
from noise2text.experiments.experiment import SHUFFLED, Arm, Experiment, ModelSpec, TrainedSetting, hash_value
from noise2text.experiments.measures import MEASURES, TextMeasures, measure_model, measure_training
from noise2text.models import Model
from noise2text.models.folder import load, load_config

__all__ = ["Grid"]

POLL_SECONDS = 2.0  # between checks whether another process has finished with a model
TRAINED_FILE = "trained.json"  # in a model's folder: marks it as finished, with the training time


@dataclass
class Grid:
    """An experiment that runs in a folder."""

    experiment: Experiment
    out: Path
    scale: str
    files: CorpusFiles
    changes: dict[str, Any]
    measures: TextMeasures
    sentences: int | None
    device: str | None
    display: Display
    pretrained: dict[str, str] = field(default_factory=dict)  # folders by name
    failed: dict[Path, str] = field(default_factory=dict)  # models whose training failed in this run
    loaded: tuple[Path, Model] | None = None  # the last loaded model, which the next arm may share
    written_before: dict[Path, int] = field(default_factory=dict)  # when results of earlier runs were

    @cached_property
    def corpus_hashes(self) -> dict[str, str]:
        """The hashes of the corpora."""
        return {name: hash_corpus(file) for name, file in self.files.by_name.items()}

    @property
    def results_dir(self) -> Path:
        """The folder of the results."""
        name, preset = self.experiment.name, self.experiment.chosen_preset
        return self.out / (f"{name}-{preset}" if preset else name) / self.scale

    def run_all(self, jobs: Sequence[tuple[Arm, int]]) -> Iterator[str]:
        """Measure all arms and yield a line about each; those whose model another process has come later."""
        results = [self._result_path(arm, seed) for arm, seed in jobs]
        self.written_before = {path: path.stat().st_mtime_ns for path in results if path.exists()}
        waiting = list(enumerate(jobs, start=1))
        while waiting:
            later = []
            for number, (arm, seed) in waiting:
                with lock_file(self._model_folder(arm.model, seed), wait=False) as acquired:
                    if not acquired:
                        later.append((number, (arm, seed)))
                        continue
                    outcome = self.run_arm(arm, seed)
                yield f"[{number} of {len(jobs)}] {arm.name}, seed {seed}: {outcome}"
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
        shown = {MEASURES[name].label: record["numbers"][name] for name in ("bleu", "exact_match")}
        return "  ".join(f"{name} {value:.2f}" for name, value in shown.items())

    def _is_done(self, arm: Arm, seed: int) -> bool:
        """Whether an arm was measured, or has failed in another process since this run started."""
        try:
            found = self.load_result(arm, seed)
        except _NoResult:
            return False
        if "error" in found:
            path = self._result_path(arm, seed)  # compared with itself: clocks may differ, or be set back
            return path.stat().st_mtime_ns != self.written_before.get(path)
        return self.measures.wanted.items() <= found["measured"].items()

    def load_results(self, seeds: int) -> list[dict[str, Any]]:
        """The records of all arms that have been run with these settings."""
        found = []
        for seed in range(seeds):
            for arm in self.experiment.arms:
                with suppress(_NoResult):
                    found.append(self.load_result(arm, seed))
        return found

    def load_result(self, arm: Arm, seed: int) -> dict[str, Any]:
        """The record of an arm: its measurements, or the error."""
        try:
            found = read_json_object(self._result_path(arm, seed))
        except Problem as error:
            raise _NoResult from error
        if found.get("identity") != self._fingerprint(arm, seed):
            raise _NoResult
        return found

    def _measure(self, arm: Arm, seed: int) -> dict[str, Any]:
        """The record of an arm, for which only what is missing is generated and measured."""
        record, pairs = self._generated_record(arm, seed), self._test_pairs()
        texts = read_arm_texts(self._texts_path(arm, seed))
        numbers, signatures = self.measures.compute(texts, pairs, record["measured"])
        return record | {
            "numbers": record["numbers"] | numbers,
            "signatures": record["signatures"] | signatures,
            "measured": record["measured"] | self.measures.wanted,
        }

    def _generated_record(self, arm: Arm, seed: int) -> dict[str, Any]:
        """The record of an arm that was measured with fewer metrics, or one of new texts without any."""
        try:
            found = self.load_result(arm, seed)
            if "error" not in found:
                read_arm_texts(self._texts_path(arm, seed))
                return found
        except (_NoResult, OSError, ValueError, LookupError, TypeError, RecursionError):  # it is damaged
            pass
        return self._generate(arm, seed)

    def _generate(self, arm: Arm, seed: int) -> dict[str, Any]:
        folder = self.ensure_trained(arm.model, seed)
        _, config = load_config(folder)
        if self.loaded is None or self.loaded[0] != folder:
            self.loaded = folder, load(folder, device=self.device)
        model, pairs = self.loaded[1], self._test_pairs()
        settings = _resolve(arm.generation_settings(self.scale), config)
        samples = arm.sample_settings(self.scale)
        generated = GeneratedArm.generate(
            model,
            [pair.src for pair in pairs],
            seed=seed,
            batch=self.experiment.batch,
            settings=settings,
            sample_settings=None if samples is None else _resolve(samples, config),
            num_samples=arm.num_samples,
        )
        write_arm_texts(self._texts_path(arm, seed), [pair.src for pair in pairs], generated.texts)
        trained = json.loads((folder / TRAINED_FILE).read_text())
        logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return {
            "numbers": generated.numbers
            | trained
            | measure_training(logged)
            | measure_model(model, config, pairs),
            "signatures": {},
            "measured": {},
            "model": folder.name,
            "generation": settings,
            "sentences": len(pairs),
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
        if changes.get("from_folder") == "":
            raise Problem(
                f"{model.recipe} needs a pre-trained model: give --pretrained {model.pretrained}=FOLDER."
            )
        corpus = self._training_corpus(model, seed)
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

    def _training_corpus(self, model: ModelSpec, seed: int) -> str:
        """The user's corpus of this name; without one, the shuffled pairs or the teacher's texts."""
        if model.corpus in self.files.by_name:
            return self.files.by_name[model.corpus]
        if model.shuffled:
            return ensure_shuffled_corpus(self.out / "corpus", self.files.train)
        assert model.teacher is not None
        return self._distill_corpus(model.teacher, seed)

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
        changes = self.experiment.changes(model, self.scale, self.changes) | {"seed": seed}
        if model.pretrained and self.scale == "full":
            changes["from_folder"] = self.pretrained.get(model.pretrained, "")
        return changes

    def _model_folder(self, model: ModelSpec, seed: int) -> Path:
        return self.out / "models" / f"{model.recipe}-{hash_value(self._model_key(model, seed))}"

    def _model_key(self, model: ModelSpec, seed: int) -> list[Any]:
        """Everything that decides a model."""
        own_corpus = model.corpus in self.files.by_name  # then the teacher is not needed
        others = (None if own_corpus else model.teacher, model.embeddings)
        dependencies = [other and self._model_key(other, seed) for other in others]
        corpus = [self.corpus_hashes[model.corpus if own_corpus else "train"], self.corpus_hashes["valid"]]
        preset = self.experiment.preset(model, self.scale)
        kind = [SHUFFLED] if model.shuffled else []
        return [model.recipe, preset, self._training_changes(model, seed), corpus, dependencies, *kind]

    def _fingerprint(self, arm: Arm, seed: int) -> str:
        generation, samples = arm.generation_settings(self.scale), arm.sample_settings(self.scale)
        return hash_value(
            [
                self._model_key(arm.model, seed),
                *(
                    {name: str(value) for name, value in (each or {}).items()}
                    for each in (generation, samples)
                ),
                self.corpus_hashes["test"],
                self.sentences,
                self.experiment.batch,
            ]
        )

    def _result_path(self, arm: Arm, seed: int) -> Path:
        number = self.experiment.arms.index(arm) + 1
        slug = re.sub(r"[^a-z0-9.]+", "-", arm.name.lower()).strip("-")
        return self.results_dir / "arms" / f"{number:02d}-{slug}-seed-{seed}.json"

    def _texts_path(self, arm: Arm, seed: int) -> Path:
        name = self._result_path(arm, seed).name
        return self.results_dir / "texts" / f"{name}l"

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


def _resolve(settings: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Generation settings with the values of those that are the model's own."""
    return {
        name: get_setting(config, value.setting) if isinstance(value, TrainedSetting) else value
        for name, value in settings.items()
    }


def _format_changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())
