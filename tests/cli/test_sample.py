"""Pairs are generated as a corpus."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..conftest import small_changes
from .conftest import Outcome


def test_sample_writes_pairs_as_a_corpus(
    run: Callable[..., Outcome], model: Path, dates: Path, tmp_path: Path
) -> None:
    from noise2text import train

    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    out, pairs = tmp_path / "run", tmp_path / "pairs.jsonl"
    changes = small_changes("diffusion-lm", {"optim.steps": 2})
    train("diffusion-lm", out=out, preset="tiny", changes=changes, device="cpu", **files)
    done = run(
        "sample", out, "--count", 3, "--steps", 2, "--source", "7 mai", "--target", "19___", "--output", pairs
    )
    assert done.code == 0, done.err
    records = [json.loads(line) for line in pairs.read_text().splitlines()]
    assert len(records) == 3
    assert all(record["src"] == "7 mai" and record["trg"].startswith("19") for record in records)
    refused = run("sample", model, "--count", 3, "--output", tmp_path / "none.jsonl")
    assert refused.code == 1
    assert "generates targets, not sources" in refused.err
    packed = run("sample", out, "--count", 3, "--steps", 2, "--output", tmp_path / "none.jsonl.gz")
    assert packed.code == 1
    assert "leave out the .gz" in packed.err
    assert not list(tmp_path.glob("none.*"))
