"""A classifier is trained by command, and steers a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome


def test_a_classifier_is_trained_and_steers_by_command(
    run: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    assert run("synth", "days", "--out", tmp_path, "--pairs", 50).code == 0
    files = ["--train", tmp_path / "train.jsonl", "--valid", tmp_path / "valid.jsonl"]
    done = run(
        *("train-classifier", model, *files, "--out", tmp_path / "guide", "--device", "cpu"),
        *("--set=steps=2", "--set=batch_size=4"),
    )
    assert done.code == 0, done.err
    assert "valid accuracy t=0.1" in done.err
    fast = [
        "--input",
        "-",
        "--steps",
        3,
        "--stop-early",
        0,
        "--length-beam",
        1,
        "--guide",
        tmp_path / "guide",
    ]
    done = run("generate", model, *fast, "--class", "may", "--guide-rate", 5, stdin=b"1957\n1987\n")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 2
    assert re.search(r"Classifier guidance changed [0-2] of the first 2 texts", done.err)
    done = run("generate", model, *fast, "--class", "may", "--guide-steps", 0, stdin=b"1957\n1987\n")
    assert "Classifier guidance changed 0 of the first 2 texts. A model that" in done.err
    done = run("generate", model, *fast, "--class", "mai", stdin=b"1957\n")
    assert (done.code, done.out) == (1, "")
    assert "no class 'mai'" in done.err
