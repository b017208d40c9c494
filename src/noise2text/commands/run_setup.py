"""How a run begins, or goes on: its settings, its files, and the note of both that it leaves in its folder.

Of several processes the first one writes and prepares; the others come after it and find all there.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noise2text.commands.display import Display
from noise2text.commands.run_data import Data, open_data
from noise2text.core.config import change, read_config
from noise2text.core.errors import Problem
from noise2text.models.registry import Recipe
from noise2text.training import checkpoint
from noise2text.training.process_group import Team

__all__ = [
    "as_before",
    "begin",
    "first_before_others",
    "forgotten_if_refused",
    "named",
    "note_saved",
    "refuse_another",
    "require_free",
    "settle",
]

CHANGEABLE = {"steps", "log_every", "validate_every", "save_every", "tensorboard", "sharded"}
"""Settings that a resumed run may change."""


@contextmanager
def first_before_others(team: Team, out: Path) -> Iterator[None]:
    """Within, the first process is done before the others come: they find what it has written."""
    if not team.is_first:
        if team.any(False):
            raise SystemExit(1)  # the first process says why
        if not (out / "run.json").exists():
            raise Problem(f"Process {team.rank} does not see {out}: give a folder that all machines share.")
    try:
        yield
    except BaseException:
        if team.is_first:
            team.any(True)
        raise
    if team.is_first:
        team.any(False)


WRITTEN = ("run.json", "config.json", "data", "model.safetensors", "metrics.jsonl", "kept", "checkpoint-*")
"""What a run writes: where some of it is, a new one would take its place."""


def refuse_another(out: Path) -> None:
    """Refuse a folder that holds a run, or what looks like one."""
    for name in WRITTEN:
        for found in out.glob(name):
            raise Problem(
                f"{out} holds a run already ({found.name}): pass --resume to go on with it, or choose "
                f"another folder."
            )


def begin(
    recipe: Recipe,
    settings: Any,
    files: Mapping[str, str],
    out: Path,
    *,
    skip_bad: bool,
    display: Display,
    team: Team,
) -> tuple[Any, Data]:
    """The settings, complete, and the data, prepared; the folder knows what the run is."""
    if team.is_first:
        _note(out, recipe.name, settings, **files)
    with forgotten_if_refused(out, team=team):
        data = open_data(**files, folder=out / "data", settings=settings, skip_bad=skip_bad, say=display.say)
        settings = recipe.resolve(settings, data.tokenizer)
    if team.is_first:
        _note(out, recipe.name, settings, **files)
    return settings, data


@contextmanager
def forgotten_if_refused(out: Path, *, team: Team) -> Iterator[None]:
    """Within, a problem leaves no trace of a run without a step, so that it can be started otherwise."""
    try:
        yield
    except Problem:
        if team.is_first and checkpoint.latest(out) is None:
            _forget(out)
        raise


def settle(
    recipe: Recipe, preset: str | None, config: str | Path | None, changes: Mapping[str, Any] | None
) -> Any:
    """A preset's settings, changed by a file and then by assignments."""
    settings = recipe.settings(preset)
    if config is not None:
        settings = change(settings, read_config(Path(config)), where=str(config))
    return change(settings, changes or {}, where=f"train {recipe.name}")


def require_free(out: Path) -> None:
    """Refuse a folder with something in it, and what is no folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Problem(f"{out} is a file or not empty: choose another folder.")


def _note(out: Path, recipe: str, settings: Any, *, train: str, valid: str) -> None:
    """Write down what the run is, for whoever resumes it."""
    out.mkdir(parents=True, exist_ok=True)
    facts = {"recipe": recipe, "settings": dataclasses.asdict(settings), "train": train, "valid": valid}
    _write_note(out, facts | {"saved": checkpoint.latest(out) is not None})


def note_saved(out: Path) -> None:
    """Write down that the run has a checkpoint: one that has lost it must not begin again unnoticed."""
    facts = json.loads((out / "run.json").read_text("utf-8"))
    if not facts.get("saved"):
        _write_note(out, facts | {"saved": True})


def _write_note(out: Path, facts: dict[str, Any]) -> None:
    checkpoint.write_whole(out / "run.json", lambda path: path.write_text(json.dumps(facts, indent=2)))


def _forget(out: Path) -> None:
    """Remove the traces of a run whose corpus or settings were refused, so that it can be started again."""
    (out / "run.json").unlink()
    shutil.rmtree(out / "data", ignore_errors=True)


def named(config: str | Path | None, changes: Mapping[str, Any] | None) -> set[str]:
    """The settings that the user named."""
    return set(changes or {}) | set(read_config(Path(config)) if config is not None else {})


def as_before(out: Path, recipe: Recipe, wanted: Any, *, explicit: set[str], files: Mapping[str, str]) -> Any:
    """The settings of the run in `out`, with those of the explicitly wanted that may change."""
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
    before = change(recipe.settings(), facts["settings"], where=str(path))
    if facts.get("saved") and checkpoint.latest(out) is None:
        raise Problem(
            f"The checkpoints of the run in {out} are gone, so it cannot go on; its model is there as it "
            f"was. Train another in another folder."
        )
    for name in sorted(explicit - CHANGEABLE):
        if getattr(before, name) != getattr(wanted, name):
            raise Problem(
                f"The run in {out} has {name} = {getattr(before, name)!r}; a resumed run may change only "
                f"{', '.join(sorted(CHANGEABLE))}."
            )
    return dataclasses.replace(before, **{name: getattr(wanted, name) for name in explicit & CHANGEABLE})
