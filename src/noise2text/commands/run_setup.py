"""Starting or resuming a run: its config, its data, and run.json, which records both.

The main process writes and prepares the files; the other processes wait and then read them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noise2text.commands.display import Display
from noise2text.commands.run_data import TrainingData, load_data
from noise2text.core.config import apply_overrides, describe, read_config, to_dict
from noise2text.core.errors import Problem
from noise2text.models.registry import Recipe
from noise2text.training import checkpoint
from noise2text.training.process_group import ProcessGroup

__all__ = [
    "build_config",
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
    "run.tensorboard",
    "run.sharded",
}
"""Settings that a resumed run may change."""


@contextmanager
def main_process_first(group: ProcessGroup, out: Path) -> Iterator[None]:
    """Within, the main process runs first, and the others then find what it has written."""
    if not group.is_main_process:
        if group.any_process(False):
            raise SystemExit(1)  # the main process reports the error
        if not (out / "run.json").exists():
            raise Problem(f"Process {group.rank} does not see {out}: give a folder that all machines share.")
    try:
        yield
    except BaseException:
        if group.is_main_process:
            group.any_process(True)
        raise
    if group.is_main_process:
        group.any_process(False)


RUN_FILES = ("run.json", "config.json", "data", "model.safetensors", "metrics.jsonl", "kept", "checkpoint-*")
"""What a run writes; a folder with any of these is not overwritten."""


def require_no_run(out: Path) -> None:
    """Refuse a folder that holds a run or files of one."""
    for name in RUN_FILES:
        for found in out.glob(name):
            raise Problem(
                f"{out} holds a run already ({found.name}): pass --resume to go on with it, or choose "
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
) -> tuple[Any, TrainingData]:
    """The resolved config and the prepared data; writes run.json."""
    if group.is_main_process:
        _write_run_file(out, recipe.name, config, **files)
    with discard_on_problem(out, group=group):
        data = load_data(
            **files, folder=out / "data", config=config, skip_bad=skip_bad, show_line=display.show_line
        )
        config = recipe.resolve(config, data.tokenizer)
    if group.is_main_process:
        _write_run_file(out, recipe.name, config, **files)
    return config, data


@contextmanager
def discard_on_problem(out: Path, *, group: ProcessGroup) -> Iterator[None]:
    """Within, a problem removes a run without a checkpoint, so that it can be started differently."""
    try:
        yield
    except Problem:
        if group.is_main_process and checkpoint.find_checkpoint(out) is None:
            _discard_run(out)
        raise


def build_config(
    recipe: Recipe, preset: str | None, config: str | Path | None, changes: Mapping[str, Any] | None
) -> Any:
    """The config of a preset, changed by a file and then by assignments."""
    return _change_config(recipe.preset(preset), recipe, config, changes)


def _change_config(
    start: Any, recipe: Recipe, config: str | Path | None, changes: Mapping[str, Any] | None
) -> Any:
    if config is not None:
        start = apply_overrides(start, read_config(Path(config)), origin=str(config))
    return apply_overrides(start, changes or {}, origin=f"train {recipe.name}")


def require_empty(out: Path) -> None:
    """Refuse a folder that is not empty, or a file."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Problem(f"{out} is a file or not empty: choose another folder.")


def _write_run_file(out: Path, recipe: str, config: Any, *, train: str, valid: str) -> None:
    """Write run.json, which --resume reads."""
    out.mkdir(parents=True, exist_ok=True)
    facts = {"recipe": recipe, "settings": to_dict(config), "train": train, "valid": valid}
    _write_facts(out, facts | {"saved": checkpoint.find_checkpoint(out) is not None})


def mark_saved(out: Path) -> None:
    """Record that the run has a checkpoint, so that a run that lost it does not start again unnoticed."""
    facts = json.loads((out / "run.json").read_text("utf-8"))
    if not facts.get("saved"):
        _write_facts(out, facts | {"saved": True})


def _write_facts(out: Path, facts: dict[str, Any]) -> None:
    checkpoint.write_atomically(out / "run.json", lambda path: path.write_text(json.dumps(facts, indent=2)))


def _discard_run(out: Path) -> None:
    """Remove the files of a run whose corpus or config was refused."""
    (out / "run.json").unlink()
    shutil.rmtree(out / "data", ignore_errors=True)


def resume_config(
    out: Path,
    recipe: Recipe,
    wanted: Any,
    *,
    config: str | Path | None,
    changes: Mapping[str, Any] | None,
    files: Mapping[str, str],
) -> Any:
    """The config of the run in `out`, with the changes that a resumed run may make."""
    path = out / "run.json"
    if not path.exists():
        return wanted  # killed before its first step
    try:
        facts = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise Problem(f"{path} is damaged, so the run cannot go on: choose another folder.") from error
    if facts["recipe"] != recipe.name:
        raise Problem(f"{out} holds a run of {facts['recipe']}, not of {recipe.name}.")
    for name, file in files.items():
        if facts[name] != file:
            raise Problem(
                f"The run in {out} was started with --{name} {facts[name]}; resume it with the same."
            )
    saved = apply_overrides(recipe.preset(), facts["settings"], origin=str(path))
    if facts.get("saved") and checkpoint.find_checkpoint(out) is None:
        raise Problem(
            f"The checkpoints of the run in {out} are gone, so it cannot go on; its model is there as it "
            f"was. Train another in another folder."
        )
    changed, before = _change_config(saved, recipe, config, changes), dict(_values(saved))
    for name, value in _values(changed):
        if value != before[name] and name not in CHANGEABLE_ON_RESUME:
            raise Problem(
                f"The run in {out} has {name} = {before[name]!r}; a resumed run may change only "
                f"{', '.join(sorted(CHANGEABLE_ON_RESUME))}."
            )
    return changed


def _values(config: Any) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value, _ in describe(config))
