"""The command that reruns studies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from noise2text.experiments import EXPERIMENTS

from .conftest import SETS, Outcome


def test_studies_are_listed(run: Callable[..., Outcome]) -> None:
    listed = run("experiment", "--list")
    assert listed.code == 0
    assert [line for line in listed.out.splitlines() if not line.startswith(" ")] == list(EXPERIMENTS)
    rows = json.loads(run("experiment", "--list", "--json").out)
    assert [row["name"] for row in rows] == list(EXPERIMENTS)
    assert set(rows[0]) == {"name", "paper", "table", "summary", "arms", "measures", "presets"}


def test_mistakes_are_one_sentence(run: Callable[..., Outcome], tmp_path: Path) -> None:
    for arguments, said in [
        (["difformer-loses"], "difformer-losses"),
        ([], "difformer-losses"),
        (["difformer-losses", "--scale", "full"], "--train"),
        (["difformer-losses", "--test", "x.jsonl"], "--scale full"),
        (["difformer-losses", "--set", "widht=3"], "widht"),
        (["diffuseq-main", "--preset", "qpq"], "did you mean qqp"),
        (["diffuseq-main", "--metrics", "bluu"], "no metric 'bluu'"),
        (["diffuseq-main", "--corpus", "distilled=x.jsonl"], "--scale full"),
        (["difformer-losses", "--device", "gpu"], "gpu"),
    ]:
        done = run("experiment", *arguments, "--out", tmp_path)
        assert (done.code, done.out) == (1, "")
        assert said in done.err
        assert len(done.err.splitlines()) == 1


def test_the_full_scale_trains_on_the_users_files(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path
) -> None:
    files = [f"--{split}={dates / split}.jsonl" for split in ("train", "valid", "test")]
    command = ["experiment", "difformer-sampling", "--out", tmp_path, "--scale", "full", *files, *SETS]
    done = run(*command, "--sentences", 2, "--device", "cpu", "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["scale"] == "full"
    assert [row["failures"] for row in found["rows"]] == [[], []]
    assert not (tmp_path / "corpus").exists()


def test_an_experiment_of_which_nothing_came_has_failed(
    run: Callable[..., Outcome], dates: Path, tmp_path: Path
) -> None:
    files = [f"--{split}={dates / split}.jsonl" for split in ("train", "valid", "test")]
    command = ["experiment", "difformer-sampling", "--out", tmp_path, "--scale", "full", *files, *SETS]
    done = run(*command, "--set", "lr=1e30", "--set", "clip_norm=0", "--device", "cpu")
    assert done.code == 1
    assert done.out.count(" failed, ") == 2
    assert "Every arm of difformer-sampling failed" in done.err.splitlines()[-1]


@pytest.mark.long
def test_a_tiny_experiment_learns_the_dates_and_leaves_its_table(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    """A tenth of the steps, for CI."""
    short = ["--set=optim.steps=60", "--set=warmup=20", "--set=noise_factor=10"]
    command = ["experiment", "difformer-sampling", "--out", tmp_path, "--sentences", 50, *short]
    done = run(*command, "--device", "cpu")
    assert done.code == 0
    assert "Spearman" in done.out or "all equal" in done.out
    folder = tmp_path / "difformer-sampling" / "tiny"
    assert done.out == (folder / "table.md").read_text()
    first = json.loads(next((folder / "arms").glob("01-*.json")).read_text())
    assert first["numbers"]["bleu"] > 1
    lines = next((folder / "texts").glob("01-*.jsonl")).read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert len(texts) == 50
    assert all(re.fullmatch("[0-9-]+", text) for text in texts), "it writes no letters any more"
    assert (folder / "table.tex").exists()
    again = run(*command, "--device", "cpu")
    assert (again.out, "was done already" in again.err) == (done.out, True)
