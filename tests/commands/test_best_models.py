"""The average of a run's best models replaces the model that is there file by file, each at once."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from noise2text.commands.best_models import average_models
from noise2text.core.errors import Problem

from ..faults import REFUSED, STOPPED, Fault, run_with_fault

FILES = ("config.json", "generation_config.json", "tokenizer.json")


def write_folder(folder: Path, value: float) -> Path:
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text('{"name": "whole"}')
    save_file({"weight": torch.full((3,), value)}, folder / "model.safetensors")
    return folder


def read_folder(folder: Path) -> dict[str, bytes]:
    """The contents of the folder's files by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_mean_of_the_weights_is_written(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path / str(value), value) for value in (1.0, 3.0)]
    average_models(folders, tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors")["weight"].tolist() == [2.0] * 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*FILES, "model.safetensors"])


@pytest.mark.parametrize("fault", [Fault(limit=20), Fault(read_only=True)], ids=["full disk", "read-only"])
def test_what_cannot_be_written_leaves_the_model_that_was_there(tmp_path: Path, fault: Fault) -> None:
    best, out = write_folder(tmp_path / "best", 1.0), write_folder(tmp_path / "out", 2.0)
    before = read_folder(out)
    assert run_with_fault(average_models, [best], out, out=out, fault=fault) == REFUSED
    assert read_folder(out) == before


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    best, out = write_folder(tmp_path / "best", 1.0), write_folder(tmp_path / "out", 2.0)
    before, after = read_folder(out), tmp_path / "after"
    average_models([best], after)
    for number in itertools.count(1):
        code = run_with_fault(average_models, [best], out, out=out, fault=Fault(interrupt_at=number))
        found = read_folder(out)
        assert found.keys() == before.keys()
        assert all(found[name] in (before[name], new) for name, new in read_folder(after).items())
        if code == 0:
            break
        assert code == STOPPED
    assert number > len(FILES)
    assert found == read_folder(after)


def test_a_damaged_model_is_named(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path / str(value), value) for value in (1.0, 3.0)]
    (folders[1] / "model.safetensors").write_bytes(b"half")
    with pytest.raises(Problem, match=r"3\.0/model\.safetensors is not a whole safetensors file"):
        average_models(folders, tmp_path / "out")
