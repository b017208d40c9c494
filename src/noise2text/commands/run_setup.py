"""Starting or resuming a run: its config, its data, and run.json, which records both.

The main process writes and prepares the files; the other processes wait and then read them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noise2text.commands.display import Display
from noise2text.commands.run_data import TrainingData, load_data
from noise2text.core.config import apply_overrides, describe
from noise2text.core.config_files import read_config
from noise2text.core.errors import Problem
from noise2text.core.files import write_atomically
from noise2text.core.json_files import read_json_object
from noise2text.data.corpus_paths import fingerprint_corpus, make_absolute
from noise2text.models.folder import rename_settings
from noise2text.models.registry import Recipe
from noise2text.training import checkpoint
from noise2text.training.process_group import ProcessGroup

__all__ = [
    "change_config",
    "check_corpora",
    "discard_damaged_checkpoints",
    "discard_on_problem",
    "main_process_first",
    "mark_saved",
    "prepare_run",
    "require_empty",
    "require_no_run",
    "resume_config",
]

CHANGEABLE_ON_RESUME = {
    "optim.steps",
    "run.log_every",
    "run.validate_every",
    "run.save_every",
    "run.loggers",
    "run.sharded",
}
"""Settings that a resumed run may change."""


@contextmanager
def main_process_first(group: ProcessGroup, out: Path) -> Iterator[None]:
    """Context manager: the main process runs the block first; the others then read what it has written."""
    if group.rank != 0:
        if group.any_process(False):
            raise SystemExit(1)  # the main process reports the error
        if not (out / "run.json").exists():
            raise Problem(f"Process {group.rank} does not see {out}: give a folder that all machines share.")
    try:
        yield
    except BaseException:
        if group.rank == 0:
            group.any_process(True)
        raise
    if group.rank == 0:
        group.any_process(False)


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


def require_no_run(out: Path) -> None:
    """Refuse a folder that contains a run or parts of one."""
    for name in RUN_FILES:
        for found in out.glob(name):
            raise Problem(
                f"{out} already holds a run ({found.name}): pass --resume to continue it, or choose "
                f"another folder."
            )


def prepare_run(
    recipe: Recipe,
    config: Any,
    files: Mapping[str, str],
    out: Path,
    *,
    skip_bad: bool,
    display: Display,
    group: ProcessGroup,
    is_new: bool,
    fingerprints: Mapping[str, Any],
) -> tuple[Any, TrainingData]:
    """The resolved config and the prepared data; writes run.json."""
    run_info: dict[str, Any] = {"recipe": recipe.name, "settings": asdict(config)}
    run_info |= {name: make_absolute(file) for name, file in files.items()}
    if group.rank == 0:
        run_info["corpora"] = dict(fingerprints)
        _write_run_file(out, run_info)
    with discard_on_problem(out, is_new=is_new, group=group):
        data = load_data(
            **files, folder=out / "data", config=config, skip_bad=skip_bad, show_line=display.show_line
        )
        config = recipe.resolve(config, data.tokenizer)
    if group.rank == 0:
        _write_run_file(out, run_info | {"settings": asdict(config)})
    return config, data


@contextmanager
def discard_on_problem(out: Path, *, is_new: bool, group: ProcessGroup) -> Iterator[None]:
    """Context manager: a problem removes a run that this process began, so that its folder is free again."""
    try:
        yield
    except Problem:
        if is_new and group.rank == 0 and checkpoint.find_checkpoint(out) is None:
            (out / "run.json").unlink(missing_ok=True)
            shutil.rmtree(out / "data", ignore_errors=True)
        raise


def change_config(
    start: Any, config: str | Path | None, changes: Mapping[str, Any] | None, *, recipe: str
) -> Any:
    """The config, changed by a file and then by assignments."""
    if config is not None:
        start = apply_overrides(start, read_config(Path(config)), origin=str(config))
    return apply_overrides(start, changes or {}, origin=f"train {recipe}")


def require_empty(out: Path) -> None:
    """Refuse a folder that is not empty, or a file."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Problem(f"{out} is a file or not empty: choose another folder.")


def _write_run_file(out: Path, run_info: Mapping[str, Any]) -> None:
    """Write run.json, which --resume reads, and whether the run has a checkpoint."""
    text = json.dumps({**run_info, "saved": checkpoint.find_checkpoint(out) is not None}, indent=2)
    write_atomically(out / "run.json", lambda path: path.write_text(text))


def mark_saved(out: Path) -> None:
    """Record that the run has a checkpoint, so that a run that lost it does not start again unnoticed."""
    run_info = _read_run_file(out)
    if not run_info.get("saved"):
        _write_run_file(out, run_info)


def resume_config(
    out: Path,
    recipe: Recipe,
    wanted: Any,
    *,
    config: str | Path | None,
    changes: Mapping[str, Any] | None,
    files: Mapping[str, str],
    allow_changes: bool = False,
) -> Any:
    """The config of the run in `out`, with the changes that a resumed run may make."""
    path = out / "run.json"
    if not path.exists():
        return wanted  # killed before its first step
    run_info = _read_run_file(out)
    if run_info["recipe"] != recipe.name:
        raise Problem(f"{out} holds a run of {run_info['recipe']}, not of {recipe.name}.")
    for name, file in files.items():
        if make_absolute(str(run_info[name])) != make_absolute(file) and not allow_changes:
            raise Problem(
                f"The run in {out} was started with --{name} {run_info[name]}; resume it with the same."
            )
    saved = apply_overrides(recipe.preset(), rename_settings(run_info["settings"]), origin=str(path))
    if run_info.get("saved") and checkpoint.find_checkpoint(out) is None:
        raise Problem(
            f"The checkpoints of the run in {out} are missing, so it cannot be resumed. "
            f"Its model is intact. To train again, choose another folder."
        )
    changed = change_config(saved, config, changes, recipe=recipe.name)
    before = {name: value for name, value, _ in describe(saved)}
    for name, value, _ in describe(changed):
        if value != before[name] and name not in CHANGEABLE_ON_RESUME and not allow_changes:
            raise Problem(
                f"The run in {out} has {name} = {before[name]!r}, not {value!r}; a resumed run may change "
                f"only {', '.join(sorted(CHANGEABLE_ON_RESUME))}, unless you pass --allow-changes."
            )
    return changed


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


def check_corpora(out: Path, files: Mapping[str, str], *, allow_changes: bool) -> dict[str, Any]:
    """The fingerprints of the corpora; one that has changed since the run began is refused.

    With `allow_changes`, its tokens are removed instead, so that it is prepared again.
    """
    recorded = _read_run_file(out).get("corpora") or {} if (out / "run.json").exists() else {}
    fingerprints = {}
    for name, file in files.items():
        before, now = recorded.get(name), fingerprint_corpus(file)
        fingerprints[name] = now or before
        if before is None or now is None or before == now:  # a missing file is not needed, or noticed later
            continue
        if not allow_changes:
            raise Problem(
                f"{file} has changed since the run in {out} began: it had {before['bytes']:,} bytes with the "
                f"SHA-256 {before['sha256'][:12]}… and now has {now['bytes']:,} with "
                f"{str(now['sha256'])[:12]}…; restore it, or pass --allow-changes to continue with the "
                f"changed --{name}."
            )
        shutil.rmtree(out / "data" / name, ignore_errors=True)
    return fingerprints


def discard_damaged_checkpoints(out: Path, *, show_line: Callable[[str], None]) -> None:
    """Leave only the checkpoints that are as they were saved; a Problem if all are damaged."""
    checkpoints = checkpoint.list_checkpoints(out)
    damage = {folder: checkpoint.find_damage(folder) for folder in checkpoints}
    damaged = {folder: file for folder, file in damage.items() if file is not None}
    if damaged and len(damaged) == len(checkpoints):
        names = ", ".join(f"{folder.name}/{file}" for folder, file in damaged.items())
        raise Problem(
            f"The checkpoints of the run in {out} are damaged ({names} is not as it was saved): copy "
            f"them again, or train in another folder."
        )
    for folder, file in damaged.items():
        checkpoint.discard(folder)
        show_line(f"{folder.name} is damaged ({file} is not as it was saved): it is not used")
