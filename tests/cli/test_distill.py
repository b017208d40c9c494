"""A corpus is distilled by command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome


def test_distill_by_command(run: Callable[..., Outcome], model: Path, dates: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((dates / "test.jsonl").read_text().splitlines(keepends=True)[:5]))
    corpus = tmp_path / "distilled.jsonl"
    command = ["distill", model, "--input", few, "--output", corpus, "--device", "cpu"]
    done = run(*command, "--steps", "2")
    assert done.code == 0, done.err
    assert f"{corpus}:" in done.err
    assert corpus.exists()
    corpus.unlink()
    wrong = run(*command, "--beam", "5")
    assert wrong.code == 1
    assert "no setting 'beam'" in wrong.err
