"""The demo replaces nothing but a demo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome


def test_the_demo_replaces_nothing_but_a_demo(run: Callable[..., Outcome], tmp_path: Path) -> None:
    """A folder of one's own may well have something called corpus in it."""
    (tmp_path / "corpus").mkdir()
    mine = tmp_path / "thesis.txt"
    mine.write_text("precious")
    outcome = run("demo", "--out", tmp_path)
    assert outcome.code == 1
    assert "was not made by the demo" in outcome.err
    assert mine.read_text() == "precious"
    outcome = run("demo", "--out", mine)
    assert outcome.code == 1
    assert "is a file" in outcome.err
