"""Models are compared by command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome


def test_compare_by_command(run: Callable[..., Outcome], model: Path, dates: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((dates / "test.jsonl").read_text().splitlines(keepends=True)[:5]))
    out = tmp_path / "comparison"
    done = run("compare", model, "--test", few, "--out", out, "--published", "qqp", "--device", "cpu")
    assert done.code == 0, done.err
    assert done.out == (out / "comparison.md").read_text()
    assert done.out.startswith("# Comparison on few.jsonl, 5 sentences")
    wrong = run("compare", "--test", few, "--out", out)
    assert wrong.code == 1
    assert "nothing to compare" in wrong.err
