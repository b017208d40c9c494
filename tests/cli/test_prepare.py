"""A prepared corpus is checked against the settings of the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import SETS, Outcome


def test_a_prepared_corpus_of_longer_pairs_is_refused_before_anything_is_written(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path
) -> None:
    files = ("--train", dates / "train.jsonl", "--valid", dates / "valid.jsonl")
    made = run("prepare", *files, "--out", tmp_path / "prepared", "--preset", "tiny", *SETS)
    assert made.code == 0, made.err
    given = ("--train", tmp_path / "prepared" / "train", "--valid", tmp_path / "prepared" / "valid")
    more = (*SETS, "--set", "max_source=9")
    done = run("train", "difformer", *given, "--out", tmp_path / "run", "--preset", "tiny", *more)
    assert done.code == 1
    assert "max_source" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()
