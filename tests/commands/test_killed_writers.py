"""Whatever happens to a command that writes: each file is whole or absent, and the next run ends as usual.

Each command runs in a process of its own, which is killed, interrupted or out of disk at its n-th write.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from noise2text.commands.train import train
from noise2text.data.dates import write_dates
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.folder import save
from noise2text.models.registry import find_recipe

from ..conftest import SMALL
from ..faults import REFUSED, STOPPED, Fault, run_with_fault
from .writers import WRITERS

DRAFT = re.compile(r"\.draft\b|\.part-\d|\.lock$|(^|/)partial/")
FIGURES = re.compile(rb"[\d.,e\s|-]+")
RECORDS_SPEED = re.compile(
    r"comparison\.|table\.|trained\.json|arms/|metrics\.jsonl|README\.md|spent\.json|outputs/"
)
SLOW = {"experiment", "report", "compare"}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """What the commands read."""
    folder = tmp_path_factory.mktemp("given")
    write_dates(folder, pairs=60, seed=0)
    few = (folder / "test.jsonl").read_text().splitlines(keepends=True)[:10]
    (folder / "few.jsonl").write_text("".join(few))
    (folder / "raw.txt").write_text("a\nb\nc\n")
    files: dict[str, Any] = {name: str(folder / f"{name}.jsonl") for name in ("train", "valid")}
    changes = SMALL | {"optim.steps": 2, "noise_factor": 2.0, "generation.steps": 2}
    train("difformer", out=folder / "model", preset="tiny", changes=changes, device="cpu", **files)
    (folder / "raw10.txt").write_text("".join(f"{number}\n" for number in range(10)))
    recipe = find_recipe("diffuseq-position-sigmoid")
    config = recipe.preset("tiny")
    save(folder / "old", recipe.build(config, tokenizer), recipe="diffuseq-staggered", config=config)
    return folder


def read_files(folder: Path, *, drafts: bool = False) -> dict[str, bytes]:
    """The contents of all files but drafts; where speeds are recorded, without figures."""
    names = {path: str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {
        name: FIGURES.sub(b"", path.read_bytes()) if RECORDS_SPEED.search(name) else path.read_bytes()
        for path, name in names.items()
        if drafts or not DRAFT.search(name)
    }


def faults(name: str) -> list[tuple[Fault, int]]:
    """What happens at which write, and the exit code; of a slow command less."""
    hard = [(Fault(kill_at=4), -signal.SIGKILL), (Fault(limit=16), REFUSED)]
    if name in SLOW:
        return hard
    more = [(Fault(kill_at=2), -signal.SIGKILL), (Fault(read_only=True), REFUSED)]
    return [*hard, *more, (Fault(interrupt_at=3), STOPPED)]


@pytest.mark.long
@pytest.mark.parametrize("name", WRITERS)
def test_a_command_that_was_stopped_at_a_write_ends_as_usual_when_started_again(
    name: str, given: Path, tmp_path: Path
) -> None:
    assert run_with_fault(WRITERS[name], given, tmp_path / "whole", out=tmp_path) == 0
    expected = read_files(tmp_path / "whole", drafts=True)
    for number, (fault, code) in enumerate(faults(name)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run_with_fault(WRITERS[name], given, folder / "out", out=folder, fault=fault) == code, fault
        left = read_files(folder / "out")
        assert left == {file: expected.get(file) for file in left}, fault
        assert run_with_fault(WRITERS[name], given, folder / "out", out=folder) == 0, fault
        assert read_files(folder, drafts=True) == {f"out/{file}": expected[file] for file in expected}, fault
