"""Training on rows, and on pairs without a validation set: as on the files with the same pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import noise2text
from noise2text.core.errors import Problem
from noise2text.data.corpus import read_pairs

from ..conftest import SMALL

SHORT = SMALL | {"optim.steps": 2, "noise_factor": 2.0}


def train(out: Path, **options: Any) -> Any:
    return noise2text.train("difformer", out=out, preset="tiny", device="cpu", changes=SHORT, **options)


def rows_of(file: Path) -> list[tuple[str, str]]:
    return [(pair.src, pair.trg) for pair in read_pairs(str(file))]


def test_rows_train_the_same_model_as_the_file(dates: Path, tmp_path: Path) -> None:
    files = {name: dates / f"{name}.jsonl" for name in ("train", "valid")}
    train(tmp_path / "files", **files)
    train(tmp_path / "rows", **{name: rows_of(file) for name, file in files.items()})
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("files", "rows")]
    assert weights[0] == weights[1]


def test_a_missing_validation_file_is_named_before_the_training_pairs_are_read(
    dates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Problem, match="There is no file"):
        train(tmp_path / "run", train=dates / "train.jsonl", valid=tmp_path / "typo.jsonl")
    assert "tokenizer" not in "".join(capsys.readouterr())
    assert not (tmp_path / "run").exists()


def test_without_validation_pairs_some_are_set_aside(dates: Path, tmp_path: Path) -> None:
    class Lines:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def show_line(self, line: str) -> None:
            self.lines.append(line)

        def start(self, total: int) -> None: ...

        def progress(self, step: int, summary: str) -> None: ...

    display = Lines()
    train(tmp_path / "file", train=dates / "train.jsonl", display=display)
    train(tmp_path / "rows", train=rows_of(dates / "train.jsonl"))
    pairs = [rows_of(tmp_path / "file" / "data" / "pairs" / f"{name}.jsonl") for name in ("train", "valid")]
    assert sorted(pairs[0] + pairs[1]) == sorted(rows_of(dates / "train.jsonl"))
    assert {src for src, _ in pairs[0]}.isdisjoint({src for src, _ in pairs[1]})
    assert any(line.startswith(f"validation: {len(pairs[1])} of") for line in display.lines)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("file", "rows")]
    assert weights[0] == weights[1]
    recorded = json.loads((tmp_path / "file" / "run.json").read_text())
    assert Path(recorded["valid"]).is_file()


def test_a_resumed_run_takes_the_same_rows_and_no_others(dates: Path, tmp_path: Path) -> None:
    rows = rows_of(dates / "train.jsonl")
    train(tmp_path / "run", train=rows)
    longer = SHORT | {"optim.steps": 3}
    options: dict[str, Any] = {"out": tmp_path / "run", "preset": "tiny", "device": "cpu", "resume": True}
    with pytest.raises(Problem, match="started with other train pairs"):
        noise2text.train("difformer", train=rows[1:], changes=longer, **options)
    noise2text.train("difformer", train=rows, changes=longer, **options)
    assert (tmp_path / "run" / "checkpoint-00000003").is_dir()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": "-", "valid": "-"}, "not both"),
        ({"train": [("a", "b")]}, "two different sources"),
        ({"train": [("a", "b"), ("c", "")]}, "Row 1"),
        ({"train": [("a", "b")], "valid": [("c", "")]}, "Row 0"),
        ({"train": "a.jsonl", "fields": ("de", "en")}, "leave it out for files"),
    ],
)
def test_a_mistake_leaves_the_folder_free(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message):
        train(tmp_path / "run", **options)
    assert not list(tmp_path.glob("run/data"))
    assert not list(tmp_path.glob("run/run.json"))


def test_a_prepared_folder_needs_validation_pairs(dates: Path, tmp_path: Path) -> None:
    files = {name: dates / f"{name}.jsonl" for name in ("train", "valid")}
    train(tmp_path / "run", **files)
    with pytest.raises(Problem, match="is prepared and cannot be split"):
        train(tmp_path / "again", train=tmp_path / "run" / "data" / "train")
