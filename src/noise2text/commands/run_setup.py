"""Starting or resuming a run: its config, its data, and run.json, which records both.

The main process writes and prepares the files; the other processes wait and then read them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noise2text.commands.display import Display
from noise2text.commands.run_corpora import Corpora
from noise2text.commands.run_data import TrainingData, load_data
from noise2text.core.arguments import parse_path
from noise2text.core.config import apply_overrides, describe
from noise2text.core.config_files import read_config
from noise2text.core.errors import Problem
from noise2text.core.files import require_utf8_name, write_atomically
from noise2text.core.json_files import read_json_object
from noise2text.core.locks import lock_folder
from noise2text.data.corpus_paths import fingerprint_corpus, make_absolute
from noise2text.models.folder import rename_settings
from noise2text.models.registry import Recipe
from noise2text.training import checkpoint
from noise2text.training.process_group import ProcessGroup

__all__ = ["OpenRun", "RunSetup", "change_config", "mark_saved"]

CHANGEABLE_ON_RESUME = {
    "optim.steps",
    "run.log_every",
    "run.validate_every",
    "run.save_every",
    "run.loggers",
    "run.sharded",
}
"""Settings that a resumed run may change."""

RUN_FILES = (
    "run.json",
    "config.json",
    "data",
    "model.safetensors",
    "metrics.jsonl",
    "best_models",
    "checkpoint-*",
)
"""What a run writes; a folder with any of these is not overwritten."""


@dataclass(frozen=True)
class OpenRun:
    """A run that is ready to train: its resolved config, its prepared data, and whether it is new."""

    config: Any
    data: TrainingData
    is_new: bool


@dataclass(frozen=True)
class RunSetup:
    """What `train` was asked for.

    Fields:
        recipe, out, corpora: what is trained, in which folder, on which pairs.
        config: the config of a new run.
        config_file, changes: the file and the assignments that are in it already, for the config of a run
            that is resumed.
        resume: continue the run in the folder, if there is one.
        allow_changes: resume although the corpus or a setting is not that of the run.
        skip_bad: skip lines that are not pairs.
        display, group: where progress is shown, and the processes that train.
    """

    recipe: Recipe
    out: Path
    corpora: Corpora
    config: Any
    config_file: str | Path | None
    changes: Mapping[str, Any]
    resume: bool
    allow_changes: bool
    skip_bad: bool
    display: Display
    group: ProcessGroup

    @contextmanager
    def open(self) -> Iterator[OpenRun]:
        """Context manager: the run, new or resumed, in a folder that no other process may use."""
        with ExitStack() as work:
            with self._main_process_first():
                if self.resume and not self.out.exists():
                    self.display.show_line(f"There is no run in {self.out} to resume; starting a new one.")
                require_utf8_name(self.out)  # now rather than when the first checkpoint is read
                if self.group.rank == 0:
                    work.enter_context(lock_folder(self.out))
                    checkpoint.delete_drafts(self.out)
                run = self._prepare()
            yield run

    @contextmanager
    def discard_on_problem(self, *, is_new: bool) -> Iterator[None]:
        """Context manager: a Problem removes a run that is new, so that its folder is free again."""
        try:
            yield
        except Problem:
            if is_new and self.group.rank == 0 and checkpoint.find_checkpoint(self.out) is None:
                (self.out / "run.json").unlink(missing_ok=True)
                shutil.rmtree(self.out / "data", ignore_errors=True)
            raise

    @contextmanager
    def _main_process_first(self) -> Iterator[None]:
        """Context manager: the main process runs the block first; the others then read what it wrote."""
        group = self.group
        if group.rank != 0:
            if group.any_process(False):
                raise SystemExit(1)  # the main process reports the error
            if not (self.out / "run.json").exists():
                raise Problem(
                    f"Process {group.rank} does not see {self.out}: give a folder that all machines share."
                )
        try:
            yield
        except BaseException:
            if group.rank == 0:
                group.any_process(True)
            raise
        if group.rank == 0:
            group.any_process(False)

    def _prepare(self) -> OpenRun:
        """The run with its data; the main process writes run.json."""
        is_new, is_main = not (self.out / "run.json").exists(), self.group.rank == 0
        config, fingerprints = self._find_config(), {}
        if is_main:
            seed = getattr(config.run, "seed", 0)
            self.corpora.write(seed=seed, skip_bad=self.skip_bad, show_line=self.display.show_line)
            fingerprints = self._check_corpora()
            self._discard_damaged_checkpoints()
        files = self.corpora.files
        run_info: dict[str, Any] = {"recipe": self.recipe.name, "settings": asdict(config)}
        run_info |= {name: make_absolute(file) for name, file in files.items()} | {"corpora": fingerprints}
        if is_main:
            _write_run_file(self.out, run_info)
        with self.discard_on_problem(is_new=is_new):
            folder, show_line = self.out / "data", self.display.show_line
            data = load_data(
                **files, folder=folder, config=config, skip_bad=self.skip_bad, show_line=show_line
            )
            config = self.recipe.resolve(config, data.tokenizer)
        if is_main:
            _write_run_file(self.out, run_info | {"settings": asdict(config)})
        return OpenRun(config, data, is_new)

    def _find_config(self) -> Any:
        """The config of the run in the folder, with the changes that it may have; else that of a new run."""
        if self.resume and (self.out / "run.json").exists():  # otherwise killed before its first step
            return self._resume_config(_read_run_file(self.out))
        if not self.resume and self.group.rank == 0:
            for found in (found for name in RUN_FILES for found in self.out.glob(name)):
                raise Problem(
                    f"{self.out} already holds a run ({found.name}): pass --resume to continue it, or choose "
                    f"another folder."
                )
        return self.config

    def _resume_config(self, run_info: Mapping[str, Any]) -> Any:
        """The config in run.json, with the changes that a resumed run may have."""
        recipe, out = self.recipe, self.out
        if run_info["recipe"] != recipe.name:
            raise Problem(f"{out} holds a run of {run_info['recipe']}, not of {recipe.name}.")
        for name, file in self.corpora.files.items():
            if make_absolute(str(run_info[name])) != make_absolute(file) and not self.allow_changes:
                raise Problem(
                    f"The run in {out} was started with --{name} {run_info[name]}; resume it with the same."
                )
        settings = rename_settings(run_info["settings"])
        saved = apply_overrides(recipe.preset(), settings, origin=str(out / "run.json"))
        if run_info.get("saved") and checkpoint.find_checkpoint(out) is None:
            raise Problem(
                f"The checkpoints of the run in {out} are missing, so it cannot be resumed. "
                f"Its model is intact. To train again, choose another folder."
            )
        changed = change_config(saved, self.config_file, self.changes, recipe=recipe.name)
        before = {name: value for name, value, _ in describe(saved)}
        for name, value, _ in describe(changed):
            if value != before[name] and name not in CHANGEABLE_ON_RESUME and not self.allow_changes:
                raise Problem(
                    f"The run in {out} has {name} = {before[name]!r}, not {value!r}; a resumed run may "
                    f"change only {', '.join(sorted(CHANGEABLE_ON_RESUME))}, unless you pass --allow-changes."
                )
        return changed

    def _check_corpora(self) -> dict[str, Any]:
        """The fingerprints of the corpora; one that has changed since the run began is refused.

        With `allow_changes`, its tokens are removed instead, so that it is prepared again.
        """
        out, fingerprints = self.out, {}
        recorded = _read_run_file(out).get("corpora") or {} if (out / "run.json").exists() else {}
        for name, file in self.corpora.files.items():
            before, now = recorded.get(name), fingerprint_corpus(file)
            fingerprints[name] = now or before
            # A missing file is not needed, or noticed later.
            if before is None or now is None or before == now:
                continue
            if not self.allow_changes:
                raise Problem(
                    f"{file} has changed since the run in {out} began: it had {before['bytes']:,} bytes with "
                    f"the SHA-256 {before['sha256'][:12]}… and now has {now['bytes']:,} with "
                    f"{str(now['sha256'])[:12]}…; restore it, or pass --allow-changes to continue with the "
                    f"changed --{name}."
                )
            shutil.rmtree(out / "data" / name, ignore_errors=True)
        return fingerprints

    def _discard_damaged_checkpoints(self) -> None:
        """Leave only the checkpoints that are as they were saved; a Problem if all are damaged."""
        checkpoints = checkpoint.list_checkpoints(self.out)
        damage = {folder: checkpoint.find_damage(folder) for folder in checkpoints}
        damaged = {folder: file for folder, file in damage.items() if file is not None}
        if damaged and len(damaged) == len(checkpoints):
            names = ", ".join(f"{folder.name}/{file}" for folder, file in damaged.items())
            raise Problem(
                f"The checkpoints of the run in {self.out} are damaged ({names} is not as it was saved): "
                f"copy them again, or train in another folder."
            )
        for folder, file in damaged.items():
            checkpoint.discard(folder)
            self.display.show_line(
                f"{folder.name} is damaged ({file} is not as it was saved): it is not used"
            )


def change_config(
    start: Any, config: str | Path | None, changes: Mapping[str, Any] | None, *, recipe: str
) -> Any:
    """The config, changed by a file and then by assignments."""
    if config is not None:
        file = parse_path(config, where="train, as config,", kind="file")
        start = apply_overrides(start, read_config(file), origin=str(config))
    return apply_overrides(start, changes or {}, origin=f"train {recipe}")


def mark_saved(out: Path) -> None:
    """Record that the run has a checkpoint, so that a run that lost it does not start again unnoticed."""
    run_info = _read_run_file(out)
    if not run_info.get("saved"):
        _write_run_file(out, run_info)


def _write_run_file(out: Path, run_info: Mapping[str, Any]) -> None:
    """Write run.json, which --resume reads, and whether the run has a checkpoint."""
    text = json.dumps({**run_info, "saved": checkpoint.find_checkpoint(out) is not None}, indent=2)
    write_atomically(out / "run.json", lambda path: path.write_text(text))


def _read_run_file(out: Path) -> dict[str, Any]:
    """The contents of run.json; a Problem if it is damaged."""
    path = out / "run.json"
    damaged = Problem(f"{path} is damaged, so the run cannot be resumed: choose another folder.")
    try:
        run_info = read_json_object(path)
    except Problem as problem:
        raise damaged from problem
    corpora = run_info.get("corpora") or {}
    if (
        not all(isinstance(run_info.get(name), str) for name in ("recipe", "train", "valid"))
        or not isinstance(run_info.get("settings"), dict)
        or not isinstance(corpora, dict)
        or not all(each is None or _is_fingerprint(each) for each in corpora.values())
    ):
        raise damaged
    return run_info


def _is_fingerprint(value: object) -> bool:
    """Whether this can be the fingerprint of a corpus."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("bytes"), int)
        and isinstance(value.get("sha256"), str)
    )
