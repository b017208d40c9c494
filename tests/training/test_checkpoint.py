"""A checkpoint is whole on the disk before it takes its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from noise2text.core.errors import Problem
from noise2text.training.averaging import Ema
from noise2text.training.checkpoint import find_checkpoint, find_damage, list_checkpoints, read_progress, save


def test_all_files_are_on_the_disk_before_a_checkpoint_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk cannot be asked, so the system call is recorded."""
    module, folder = nn.Linear(2, 3), tmp_path / "checkpoint-00000002"
    flushed: set[tuple[int, bool]] = set()

    def record(handle: int) -> None:
        flushed.add((os.fstat(handle).st_ino, folder.exists()))

    def write_model(draft: Path) -> None:
        (draft / "shards").mkdir()  # what several processes write
        for name in ("model.safetensors", "shards/1.safetensors"):
            (draft / name).write_text(name)

    (tmp_path / "checkpoint-00000001").mkdir()
    monkeypatch.setattr(os, "fsync", record)
    save(
        tmp_path,
        step=2,
        write_model=write_model,
        optimizer=torch.optim.SGD(module.parameters()),
        module=module,
        objective=nn.Identity(),
        ema=Ema(module, 0.9),
        progress={},
    )
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert set(files) == {
        "checksums.json",
        "model.safetensors",
        "shards/1.safetensors",
        "training.json",
        "training.safetensors",
    }
    assert {(path.stat().st_ino, False) for path in files.values()} <= flushed
    assert (tmp_path.stat().st_ino, True) in flushed  # the new name too is on the disk
    assert find_checkpoint(tmp_path) == folder
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-00000001", folder.name}


def save_small(run: Path, step: int, write_model: Callable[[Path], None] = lambda draft: None) -> Path:
    module = nn.Linear(2, 3)
    return save(
        run,
        step=step,
        write_model=write_model,
        optimizer=torch.optim.SGD(module.parameters()),
        module=module,
        objective=nn.Identity(),
        ema=Ema(module, 0.9),
        progress={},
    )


def test_a_copy_of_a_checkpoint_is_neither_the_newest_nor_deleted(tmp_path: Path) -> None:
    save_small(tmp_path, 8)
    mine = [tmp_path / f"checkpoint-{name}" for name in ("00000008-copy2", "00000009.old", "9", "final")]
    for folder in mine:
        folder.mkdir()
    assert find_checkpoint(tmp_path) == tmp_path / "checkpoint-00000008"
    for step in (12, 16, 100_000_000):
        save_small(tmp_path, step)
    assert [path.name for path in list_checkpoints(tmp_path)] == [
        "checkpoint-00000016",
        "checkpoint-100000000",
    ]
    assert all(folder.is_dir() for folder in mine)


@pytest.mark.parametrize("name", ["training.safetensors", "training.json", "checksums.json"])
@pytest.mark.parametrize("change", ["flip", "truncate", "delete"])
def test_every_change_of_a_checkpoint_is_found_by_its_checksums(
    tmp_path: Path, name: str, change: str
) -> None:
    folder = save_small(tmp_path, 1)
    assert find_damage(folder) is None
    (folder / "mine.txt").write_text("a file of the user")
    assert find_damage(folder) is None
    file = folder / name
    content = file.read_bytes()
    if change == "delete":
        file.unlink()
    else:
        half = len(content) // 2
        file.write_bytes(content[:half] + (b"" if change == "truncate" else b"\xff" + content[half + 1 :]))
    known = (name, change) == ("checksums.json", "delete")  # as a checkpoint from before there were any
    assert find_damage(folder) == (None if known else name)


def test_a_draft_goes_when_a_checkpoint_cannot_be_written(tmp_path: Path) -> None:
    """Several processes write with torch, whose errors do not say what the system said."""

    def fill_disk(draft: Path) -> None:
        (draft / "model.safetensors").write_text("half")
        raise OSError("no space on the shards' disk")

    save_small(tmp_path, 1)
    with pytest.raises(
        Problem, match=r"checkpoint-00000002 cannot be written \(no space on the shards' disk"
    ):
        save_small(tmp_path, 2, fill_disk)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000001"]


ALTERED = [
    "{}",
    "[]",
    "[" * 100_000,
    '{"step": "3", "best": []}',
    '{"step": 3}',
    '{"step": 3, "best": [3]}',
    '{"step": 3, "best": [["a", 1]]}',
    '{"step": 3, "best": [], "unlogged": 1}',
]


@pytest.mark.parametrize("contents", ALTERED, ids=lambda contents: contents[:20])
def test_an_altered_training_file_is_one_sentence(contents: str, tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(contents)
    with pytest.raises(Problem, match=r"training\.json"):
        read_progress(tmp_path)
