"""The average of a run's best models replaces the model that is there file by file, each at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from noise2text.commands.average_checkpoints import average_models
from noise2text.core import weights_file
from noise2text.core.errors import Problem

FILES = ("config.json", "generation_config.json", "tokenizer.json")


def write_folder(folder: Path, value: float) -> Path:
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text('{"name": "whole"}')
    save_file({"weight": torch.full((3,), value)}, folder / "model.safetensors")
    return folder


def test_the_mean_of_the_weights_is_written(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path / str(value), value) for value in (1.0, 3.0)]
    average_models(folders, tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors")["weight"].tolist() == [2.0] * 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*FILES, "model.safetensors"])


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best, out = write_folder(tmp_path / "best", 1.0), write_folder(tmp_path / "out", 2.0)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def stop_halfway(tensors: object, path: Path, metadata: object = None) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(weights_file, "save_file", stop_halfway)
    with pytest.raises(KeyboardInterrupt):
        average_models([best], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_damaged_model_is_named(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path / str(value), value) for value in (1.0, 3.0)]
    (folders[1] / "model.safetensors").write_bytes(b"half")
    with pytest.raises(Problem, match=r"3\.0/model\.safetensors is not a whole safetensors file"):
        average_models(folders, tmp_path / "out")
