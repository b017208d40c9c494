"""Faults of a run's disk and files: nothing is lost or left behind, and one sentence says what to do."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noise2text.commands.display import SilentDisplay
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.training.checkpoint import find_checkpoint, list_checkpoints

from ..conftest import SMALL

CHANGES = SMALL | {
    "optim.steps": 12,
    "save_every": 4,
    "validate_every": 5,
    "log_every": 5,
    "average_best": 2,
    "max_tokens": 256,
}


class Killed(Exception):
    pass


class RecordingDisplay(SilentDisplay):
    """Records its lines, and dies at a step."""

    def __init__(self, *, dies_at: int = 1_000) -> None:
        self.said: list[str] = []
        self.dies_at = dies_at

    def show_line(self, line: str) -> None:
        self.said.append(line)

    def progress(self, step: int, summary: str) -> None:
        if step >= self.dies_at:
            raise Killed


def run(corpus: Path, out: Path, *, changes: dict[str, Any] | None = None, **more: Any) -> None:
    files: dict[str, Any] = {name: str(corpus / f"{name}.jsonl") for name in ("train", "valid")}
    settings = CHANGES | (changes or {})
    train("difformer", out=out, preset="tiny", changes=settings, device="cpu", **(files | more))


@pytest.fixture(scope="module")
def whole(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run(dates, out)
    return out


@pytest.fixture
def corpus(dates: Path, tmp_path: Path) -> Path:
    """A corpus that a test may change."""
    return Path(shutil.copytree(dates, tmp_path / "corpus"))


def metrics(out: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl, without the speed."""
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k != "tokens_per_second"} for record in records]


def assert_same_run(out: Path, whole: Path) -> None:
    for file in ("model.safetensors", "checkpoint-00000012/training.safetensors"):
        assert (out / file).read_bytes() == (whole / file).read_bytes(), file
    assert metrics(out) == metrics(whole)
    assert not list(out.rglob("*.draft")) + list(out.glob("*.discarded"))


def start(dates: Path, out: Path, *, dies_at: int) -> None:
    """A run that dies at a step at which it logs."""
    with pytest.raises(Killed):
        run(dates, out, display=RecordingDisplay(dies_at=dies_at))


@pytest.mark.parametrize("step", [5, 10])
def test_the_metrics_of_a_resumed_run_are_those_of_an_undisturbed_one(
    dates: Path, whole: Path, tmp_path: Path, step: int
) -> None:
    """The line of step 10 is a mean over steps 6 to 10, of which the checkpoint of step 8 has seen three."""
    start(dates, tmp_path / "run", dies_at=step)
    run(dates, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.parametrize("file", ["model.safetensors", "training.safetensors", "training.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    dates: Path, whole: Path, tmp_path: Path, file: str
) -> None:
    out, display = tmp_path / "run", RecordingDisplay()
    start(dates, out, dies_at=10)
    damaged = out / "checkpoint-00000008" / file
    damaged.write_bytes(damaged.read_bytes()[:-3])
    run(dates, out, resume=True, display=display)
    assert f"checkpoint-00000008 is damaged ({file} is not as it was saved)" in display.said[0]
    assert "resuming after step 4" in display.said
    assert_same_run(out, whole)


def test_a_run_killed_while_it_deletes_a_checkpoint_goes_on(
    dates: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a deleted checkpoint is no checkpoint. The third save, of step 12, deletes the first."""
    out, delete = tmp_path / "run", shutil.rmtree

    def delete_a_part(folder: Path, **options: Any) -> None:
        if (folder / "training.json").exists() and folder.name != "checkpoint.draft":
            (folder / "training.json").unlink()
            raise Killed
        delete(folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", delete_a_part)
        with pytest.raises(Killed):
            run(dates, out)
    assert [folder.name for folder in list_checkpoints(out)] == ["checkpoint-00000008", "checkpoint-00000012"]
    run(dates, out, resume=True)
    assert_same_run(out, whole)


def test_a_damaged_checkpoint_that_is_not_the_newest_is_not_used_either(
    dates: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    start(dates, out, dies_at=10)
    (out / "checkpoint-00000004" / "training.json").write_text("{")
    run(dates, out, resume=True)
    assert_same_run(out, whole)


def test_a_run_whose_checkpoints_are_all_damaged_is_left_alone(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(dates, out, dies_at=10)
    for step in (4, 8):
        (out / f"checkpoint-{step:08d}" / "training.json").unlink()
    before = sorted(out.rglob("*"))
    with pytest.raises(Problem, match=r"checkpoint-00000004/training\.json, checkpoint-00000008/"):
        run(dates, out, resume=True)
    assert sorted(out.rglob("*")) == before


@pytest.mark.parametrize(
    ("missing", "refusal"),
    [("valid.jsonl", "There is no file"), ("run/data/valid/tokens.bin", "is damaged")],
)
def test_a_file_that_is_missing_for_a_moment_costs_nothing(
    corpus: Path, whole: Path, missing: str, refusal: str
) -> None:
    out, file, away = corpus / "run", corpus / missing, corpus / "away"
    with pytest.raises(Killed):
        run(corpus, out, display=RecordingDisplay(dies_at=2), changes={"log_every": 2})
    assert find_checkpoint(out) is None
    file.rename(away)
    before = {path: path.read_bytes() for path in (out / "data").rglob("*") if path.is_file()}
    with pytest.raises(Problem, match=refusal):
        run(corpus, out, resume=True)
    assert {path: path.read_bytes() for path in (out / "data").rglob("*") if path.is_file()} == before
    assert (out / "run.json").exists()
    away.rename(file)
    run(corpus, out, resume=True)
    assert_same_run(out, whole)


@pytest.mark.parametrize("name", ["train", "valid"])
def test_a_changed_corpus_is_refused_with_the_difference_unless_asked_for(
    corpus: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "run"
    start(corpus, out, dies_at=10)
    file = corpus / f"{name}.jsonl"
    size = file.stat().st_size
    with file.open("a") as opened:
        opened.write(json.dumps({"src": "7 april 1957", "trg": "1957-04-07"}) + "\n")
    difference = rf"it had {size:,} bytes .* now has {file.stat().st_size:,} .*--allow-changes"
    with pytest.raises(Problem, match=difference):
        run(corpus, out, resume=True)
    pairs = {each: _count_pairs(out, each) for each in ("train", "valid")}
    run(corpus, out, resume=True, allow_changes=True)
    assert _count_pairs(out, name) == pairs[name] + 1
    run(corpus, out, resume=True)  # the changed corpus is now that of the run


def _count_pairs(out: Path, name: str) -> int:
    return int(json.loads((out / "data" / name / "prepared.json").read_text())["report"]["pairs"])


def test_a_changed_setting_is_refused_with_both_values_unless_asked_for(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(dates, out, dies_at=5)
    with pytest.raises(Problem, match=r"optim\.lr = [\d.]+, not 0\.25"):
        run(dates, out, resume=True, changes={"lr": 0.25})
    run(dates, out, resume=True, changes={"lr": 0.25}, allow_changes=True)
    assert json.loads((out / "run.json").read_text())["settings"]["optim"]["lr"] == 0.25


def test_what_a_killed_run_was_writing_is_deleted_before_anything_is_written(
    dates: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    start(dates, out, dies_at=5)
    (out / "checkpoint.draft").mkdir()
    drafts = [out / "checkpoint.draft" / "training.safetensors.draft", out / "model.safetensors.draft"]
    mine = out / "letter.txt.draft"
    for file in (*drafts, mine):
        file.write_bytes(b"half")
    with pytest.raises(Problem, match=r"optim\.lr"):  # even if the run is refused, as by a full disk
        run(dates, out, resume=True, changes={"lr": 0.25})
    assert list(out.rglob("*.draft")) == [mine]


def test_a_run_is_resumed_from_another_working_directory(
    dates: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.chdir(dates)
    with pytest.raises(Killed):
        run(dates, out, train="train.jsonl", valid="valid.jsonl", display=RecordingDisplay(dies_at=10))
    assert json.loads((out / "run.json").read_text())["valid"] == str(dates / "valid.jsonl")
    monkeypatch.chdir(dates.parent)
    folder = dates.name
    run(dates, out, train=f"{folder}/train.jsonl", valid=f"{folder}/valid.jsonl", resume=True)
    assert_same_run(out, whole)


# A full disk: the system refuses files over a size, and says so where it would say that there is no space


def run_with_small_files(limit: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command, in a process whose files may not exceed `limit` bytes."""
    return subprocess.run(
        [sys.executable, "-m", "noise2text", *map(str, arguments)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def train_arguments(corpus: Path, out: Path) -> list[object]:
    return [
        *("train", "difformer", "--preset", "tiny", "--device", "cpu", "--out", out),
        *("--train", corpus / "train.jsonl", "--valid", corpus / "valid.jsonl"),
        *(f"--set={name}={value}" for name, value in CHANGES.items()),
    ]


def assert_one_sentence(process: subprocess.CompletedProcess[str], file: str) -> None:
    assert process.returncode == 1, process.stderr
    assert re.search(rf"noise2text: .*{file} cannot be written \(File too large\): make room", process.stderr)
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_full_disk_during_a_checkpoint_is_one_sentence_and_the_run_goes_on_later(
    dates: Path, whole: Path, tmp_path: Path, share: float
) -> None:
    """The optimizer's state is the largest file; at half its size the weights fit, or do not."""
    out = tmp_path / "run"
    start(dates, out, dies_at=5)
    state = {path: path.read_bytes() for path in (out / "checkpoint-00000004").iterdir()}
    limit = int(share * (out / "checkpoint-00000004" / "training.safetensors").stat().st_size)
    process = run_with_small_files(limit, *train_arguments(dates, out), "--resume")
    assert_one_sentence(process, "(model|training).safetensors")
    assert not list(out.rglob("*.draft"))
    assert {path: path.read_bytes() for path in (out / "checkpoint-00000004").iterdir()} == state
    run(dates, out, resume=True)
    assert_same_run(out, whole)


def test_a_full_disk_during_an_export_is_one_sentence(whole: Path, tmp_path: Path) -> None:
    process = run_with_small_files(20_000, "export", whole, "--out", tmp_path / "exported")
    assert_one_sentence(process, "exported.*")
    assert not list(tmp_path.rglob("*.draft"))
