"""The grid: every arm with every seed, resumable, one JSON each.

    FOLDER/corpus/                    the dates, for the tiny scale
    FOLDER/models/RECIPE-…/           trained once for all arms, and for all studies, that share them
    FOLDER/STUDY/SCALE/arms/….json    what was measured of an arm with a seed
    FOLDER/STUDY/SCALE/table.md       and .json, .tex

A model's name holds a hash of all that decides it, and an arm's JSON one of its model, its settings and its
test set, so that what was changed is made anew and the rest is kept. A killed grid goes on, the training
inside of it from its last checkpoint. An arm that fails says so in its JSON, is tried again by the next run,
and leaves the others alone. Several processes may work on one folder.
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

from noise2text.commands.display import Display, Quiet
from noise2text.commands.distill import distill
from noise2text.commands.train import train
from noise2text.core.devices import find_device
from noise2text.core.errors import Problem, Stopped
from noise2text.core.files import write_text_file
from noise2text.core.locks import held
from noise2text.data.corpus import Pair, read_pairs
from noise2text.experiments.corpora import Files, content, dates
from noise2text.experiments.experiment import Arm, Model, Own, Study, fingerprint
from noise2text.experiments.measures import measure_model, measure_texts
from noise2text.experiments.table import latex, markdown, tabulate
from noise2text.models import System
from noise2text.models.folder import load, settings_of

__all__ = ["Grid", "run_study"]

PATIENCE = 2.0  # seconds before looking again whether another process is done with a model
FINISHED = "trained.json"  # in a model's folder: it is ready, and how long it took


def run_study(
    study: Study,
    out: Path,
    *,
    scale: str = "tiny",
    seeds: int = 1,
    files: Files | None = None,
    changes: Mapping[str, Any] | None = None,
    sentences: int | None = None,
    device: str | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """Train, generate and measure what is missing, and write the table; returns what table.json holds."""
    out = out.resolve()  # what is resumed from another folder finds the same files
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"{out} cannot be a folder: {error.strerror}; name another.") from error
    study.check(scale, changes or {})
    find_device(device)  # what is no device would fail in every arm
    if seeds < 1 or (sentences is not None and sentences < 1):
        raise Problem("An experiment needs at least one seed and one test sentence.")
    files = files or dates(out / "corpus", scale)
    limit = sentences or (study.sentences if scale == "tiny" else None)
    grid = Grid(study, out, scale, files, dict(changes or {}), limit, device, display or Quiet())
    jobs = [(arm, seed) for seed in range(seeds) for arm in study.arms]
    grid.do_all(jobs)
    found = tabulate(study, [grid.read(arm, seed) for arm, seed in jobs], scale=scale)
    with held(grid.place / "table", wait=True):
        write_text_file(grid.place / "table.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        write_text_file(grid.place / "table.md", markdown(found))
        write_text_file(grid.place / "table.tex", latex(found))
    return found


@dataclass
class Grid:
    """A study at work in a folder."""

    study: Study
    out: Path
    scale: str
    files: Files
    changes: dict[str, Any]
    sentences: int | None
    device: str | None
    display: Display
    failed: dict[Path, str] = field(default_factory=dict)  # models whose training failed just now
    loaded: tuple[Path, System] | None = None  # the last one, which the next arm may share
    begun: float = field(default_factory=time.time)

    @cached_property
    def contents(self) -> dict[str, str]:
        """Which texts the files hold."""
        return {name: content(file) for name, file in vars(self.files).items()}

    @property
    def place(self) -> Path:
        """Where this study's results are."""
        return self.out / self.study.name / self.scale

    def do_all(self, jobs: Sequence[tuple[Arm, int]]) -> None:
        """Measure all arms; those whose model another process works on come later."""
        waiting = list(enumerate(jobs, start=1))
        while waiting:
            later = []
            for number, (arm, seed) in waiting:
                with held(self._folder(arm.model, seed), wait=False) as free:
                    if not free:
                        later.append((number, (arm, seed)))
                        continue
                    told = self.do(arm, seed)
                self.display.say(f"[{number} of {len(jobs)}] {arm.name}, seed {seed}: {told}")
            if later == waiting:
                time.sleep(PATIENCE)
            waiting = later

    def do(self, arm: Arm, seed: int) -> str:
        """Measure an arm unless that was done; returns in short what came out."""
        if self._is_done(arm, seed):
            return "was there already"
        record: dict[str, Any] = {"arm": arm.name, "seed": seed, "identity": self._identity(arm, seed)}
        try:
            record |= self._measure(arm, seed)
        except (Stopped, KeyboardInterrupt) as stop:
            raise Stopped("Stopped; the same command goes on from there.") from stop
        except Exception as error:  # whatever it is, the other arms can do without this one
            kind = "" if isinstance(error, Problem) else f"{type(error).__name__}: "
            record["error"] = kind + " ".join(str(error).split())
        write_text_file(self._file(arm, seed), json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        if "error" in record:
            return f"failed: {record['error']}"
        shown = {name: record["numbers"][name] for name in ("bleu", "exact")}
        return "  ".join(f"{name} {value:.2f}" for name, value in shown.items())

    def _is_done(self, arm: Arm, seed: int) -> bool:
        """Whether an arm was measured, or has just failed in another process."""
        try:
            found = self.read(arm, seed)
        except _Missing:
            return False
        return "numbers" in found or self._file(arm, seed).stat().st_mtime >= self.begun

    def read(self, arm: Arm, seed: int) -> dict[str, Any]:
        """What was measured of an arm, or why it failed."""
        try:
            found: dict[str, Any] = json.loads(self._file(arm, seed).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _Missing from error
        if found.get("identity") != self._identity(arm, seed):
            raise _Missing
        return found

    def _measure(self, arm: Arm, seed: int) -> dict[str, Any]:
        folder = self.trained(arm.model, seed)
        _, settings = settings_of(folder)
        if self.loaded is None or self.loaded[0] != folder:
            self.loaded = folder, load(folder, device=self.device)
        system, pairs = self.loaded[1], self._pairs()
        how = {
            name: getattr(settings, value.setting) if isinstance(value, Own) else value
            for name, value in arm.generation(self.scale).items()
        }
        begun = time.perf_counter()
        made = system.generate([pair.src for pair in pairs], seed=seed, batch=self.study.batch, **how)
        seconds = time.perf_counter() - begun
        numbers, signatures = measure_texts(
            made, pairs, system=system, asked=how.get("length"), seconds=seconds
        )
        facts = json.loads((folder / FINISHED).read_text())
        return {
            "numbers": numbers | measure_model(system, settings, pairs, facts),
            "signatures": signatures,
            "model": folder.name,
            "generation": how,
            "sentences": len(pairs),
            "texts": made.texts[:5],
        }

    def trained(self, model: Model, seed: int) -> Path:
        """The folder of the trained model; it and what it needs are trained unless they are there."""
        folder = self._folder(model, seed)
        if (folder / FINISHED).exists():
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

    def _train(self, model: Model, seed: int, folder: Path) -> None:
        changes = self._changes(model, seed)
        corpus = self._distilled(model.teacher, seed) if model.teacher else self.files.train
        if model.embeddings:
            with held(self._folder(model.embeddings, seed), wait=True):
                changes["embeddings_from"] = str(self.trained(model.embeddings, seed))
        self.display.say(f"training {folder.name}: {_told(changes)}")
        spent = folder / "spent.json"
        before = json.loads(spent.read_text()) if spent.exists() else 0.0
        begun = time.monotonic()
        try:
            train(
                model.recipe,
                train=corpus,
                valid=self.files.valid,
                out=folder,
                preset=self.study.preset(model, self.scale),
                changes=changes,
                resume=folder.exists(),
                device=self.device,
                display=_Within(self.display),
            )
        finally:
            seconds = before + time.monotonic() - begun
            if folder.exists():
                write_text_file(spent, json.dumps(seconds))
        write_text_file(folder / FINISHED, json.dumps({"training_seconds": seconds}))

    def _distilled(self, teacher: Model, seed: int) -> str:
        """The corpus of a teacher's texts to the training sources."""
        with held(self._folder(teacher, seed), wait=True):
            folder = self.trained(teacher, seed)
            output = folder / "distilled.jsonl"
            if not output.exists():
                self.display.say(f"distilling the training corpus by {folder.name}")
                distill(
                    folder,
                    input=self.files.train,
                    output=output,
                    seed=seed,
                    batch=256,
                    device=self.device,
                    display=_Within(self.display),
                )
        return str(output)

    def _changes(self, model: Model, seed: int) -> dict[str, Any]:
        return self.study.changes(model, self.scale, self.changes) | {"seed": seed}

    def _folder(self, model: Model, seed: int) -> Path:
        return self.out / "models" / f"{model.recipe}-{fingerprint(self._facts(model, seed))}"

    def _facts(self, model: Model, seed: int) -> list[Any]:
        """All that decides a model."""
        needed = [other and self._facts(other, seed) for other in (model.teacher, model.embeddings)]
        corpus = [self.contents[name] for name in ("train", "valid")]
        preset = self.study.preset(model, self.scale)
        return [model.recipe, preset, self._changes(model, seed), corpus, needed]

    def _identity(self, arm: Arm, seed: int) -> str:
        how = {name: str(value) for name, value in arm.generation(self.scale).items()}
        return fingerprint(
            [self._facts(arm.model, seed), how, self.contents["test"], self.sentences, self.study.batch]
        )

    def _file(self, arm: Arm, seed: int) -> Path:
        number = self.study.arms.index(arm) + 1
        slug = re.sub(r"[^a-z0-9.]+", "-", arm.name.lower()).strip("-")
        return self.place / "arms" / f"{number:02d}-{slug}-seed-{seed}.json"

    def _pairs(self) -> list[Pair]:
        return list(islice(read_pairs(self.files.test), self.sentences))


class _Missing(Exception):
    """There is no result of an arm, or one of other settings."""


class _Within:
    """The progress of a part, without what it says: the grid has a line for each part."""

    def __init__(self, display: Display) -> None:
        self.start, self.progress = display.start, display.progress

    def say(self, line: str) -> None:
        pass


def _told(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())
