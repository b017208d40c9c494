"""Synthetic corpora are three files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome


def test_synth_writes_three_files(run: Callable[..., Outcome], tmp_path: Path) -> None:
    assert run("synth", "dates", "--out", tmp_path / "d", "--pairs", 20, "--seed", 1).code == 0
    assert {file.name for file in (tmp_path / "d").iterdir()} == {"train.jsonl", "valid.jsonl", "test.jsonl"}
