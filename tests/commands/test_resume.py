"""A run that was killed and resumed ends with the weights of one that was not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text.commands.display import SilentDisplay
from noise2text.commands.train import train
from noise2text.core.errors import Problem, Stopped
from noise2text.core.locks import lock_folder
from noise2text.models.folder import load
from noise2text.training.checkpoint import find_checkpoint

from ..conftest import SMALL

CHANGES = SMALL | {
    "optim.steps": 12,
    "save_every": 4,
    "validate_every": 5,
    "dropout": 0.1,
    "ema_decay": 0.9,
    "average_best": 2,
    "accumulate": 2,
    "max_tokens": 128,
}


class Killed(Exception):
    pass


class DyingDisplay(SilentDisplay):
    """Dies at a step, as if the machine had."""

    def __init__(self, step: int) -> None:
        self.step = step

    def progress(self, step: int, summary: str) -> None:
        if step >= self.step:
            raise Killed


def run(dates: Path, out: Path, **more: Any) -> None:
    changes = CHANGES | more.pop("changes", {})
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("difformer", out=out, preset="tiny", changes=changes, device="cpu", **files, **more)


@pytest.fixture(scope="module")
def whole(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run(dates, out)
    return out


def assert_same_run(a: Path, b: Path) -> None:
    for file in ("model.safetensors", "config.json", "metrics.jsonl"):
        first, second = (a / file).read_bytes(), (b / file).read_bytes()
        if file == "metrics.jsonl":
            first, second = _without_speed(first), _without_speed(second)
        assert first == second, file
    last = [folder / "checkpoint-00000012" for folder in (a, b)]
    for file in ("model.safetensors", "training.safetensors", "training.json"):
        assert (last[0] / file).read_bytes() == (last[1] / file).read_bytes(), file


def _without_speed(lines: bytes) -> bytes:
    records = [json.loads(line) for line in lines.splitlines()]
    for record in records:
        record.pop("tokens_per_second", None)
    return json.dumps(records).encode()


@pytest.mark.parametrize("step", [2, 4, 6, 10, 12])
def test_a_run_that_died_at_any_step_ends_the_same(
    dates: Path, whole: Path, tmp_path: Path, step: int
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Killed):
        run(dates, out, display=DyingDisplay(step), changes={"log_every": 2})
    run(dates, out, resume=True)
    assert_same_run(whole, out)


def test_a_run_whose_noise_adapts_ends_the_same(dates: Path, tmp_path: Path) -> None:
    """The refitted schedule, the losses observed since, and the noise factor are in the checkpoint."""
    adaptive = {"refit_every": 3, "refit_start": 3, "refit_bin_size": 1000, "refit_min_count": 1}
    changes = adaptive | {"noise_factor": 2.0, "noise_factor_every": 5, "average_best": 1}
    run(dates, tmp_path / "whole", changes=changes)
    with pytest.raises(Killed):
        run(dates, tmp_path / "run", display=DyingDisplay(10), changes=changes | {"log_every": 2})
    run(dates, tmp_path / "run", resume=True, changes=changes)
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_only_the_models_that_are_averaged_are_kept(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(dates, out, changes={"best_by": "loss", "lr": 0.01, "ema_decay": 0.0})  # each is the best so far
    best = json.loads((out / "checkpoint-00000012" / "training.json").read_text())["best"]
    assert [step for *_, step in best] == [12, 10]
    before = json.loads((out / "checkpoint-00000008" / "training.json").read_text())["best"]
    assert [step for *_, step in before] == [5]
    kept = {folder.name for folder in (out / "best_models").iterdir()}
    assert kept == {"00000005", "00000010", "00000012"}


@pytest.mark.parametrize(("lr", "falls"), [(0.1, True), (1.0, False)])
def test_of_equally_good_models_the_one_of_the_least_loss_is_kept(
    dates: Path, tmp_path: Path, lr: float, falls: bool
) -> None:
    """At these learning rates no text is right yet, and the loss falls or rises."""
    out, changes = tmp_path / "run", {"optim.steps": 6, "validate_every": 3, "average_best": 1}
    run(dates, out, changes=changes | {"ema_decay": 0.0, "lr": lr})
    records = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    found = [
        [record["valid_bleu"], record["valid_loss"], record["step"]]
        for record in records
        if "valid_bleu" in record
    ]
    assert [bleu for bleu, *_ in found] == [0, 0]
    assert (found[1][1] < found[0][1]) == falls
    best = json.loads((out / "checkpoint-00000006" / "training.json").read_text())["best"]
    assert best == [found[1] if falls else found[0]]


def test_a_checkpoint_from_before_losses_were_kept_goes_on(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(dates, out, changes={"optim.steps": 8})
    facts = out / "checkpoint-00000008" / "training.json"
    old = json.loads(facts.read_text())
    facts.write_text(json.dumps(old | {"best": [[goodness, step] for goodness, _, step in old["best"]]}))
    (facts.parent / "checksums.json").unlink()
    run(dates, out, resume=True, changes={"optim.steps": 12})
    assert find_checkpoint(out) == out / "checkpoint-00000012"


@pytest.mark.parametrize(
    "name",
    ["best_models/mine/thesis.txt", "metrics.jsonl", "model.safetensors", "checkpoint-00000200/a", "data/a"],
)
def test_a_folder_with_something_that_a_run_writes_is_refused(name: str, dates: Path, tmp_path: Path) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(Problem, match="already holds a run"):
        run(dates, tmp_path / "run")
    assert file.read_text() == "mine"
    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == [file]


def test_a_run_whose_checkpoints_are_gone_keeps_its_model(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(dates, out)
    for folder in ("checkpoint-00000008", "checkpoint-00000012"):
        shutil.rmtree(out / folder)
    (out / "thesis.txt").write_text("mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for changes in ({}, {"optim.steps": 3}, {"save_every": 1000}):
        with pytest.raises(Problem, match=r"checkpoints of the run in .* are missing"):
            run(dates, out, resume=True, changes=changes)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_run_killed_before_its_first_checkpoint_begins_again_and_may_save_oftener(
    dates: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Killed):
        run(dates, out, display=DyingDisplay(6), changes={"save_every": 100, "log_every": 2})
    assert find_checkpoint(out) is None
    with pytest.raises(Killed):
        run(dates, out, display=DyingDisplay(2), resume=True, changes={"save_every": 4, "log_every": 2})
    run(dates, out, resume=True, changes={"save_every": 4})
    assert find_checkpoint(out) == out / "checkpoint-00000012"


def test_a_run_that_is_resumed_before_it_began_begins(dates: Path, whole: Path, tmp_path: Path) -> None:
    """One command starts it and continues it, as `torchrun --max-restarts` needs."""
    run(dates, tmp_path / "run", resume=True)
    weights = [(out / "model.safetensors").read_bytes() for out in (whole, tmp_path / "run")]
    assert weights[0] == weights[1]


def test_a_refused_run_leaves_the_folder_that_was_there(dates: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for out in (tmp_path / "mine", tmp_path / "link", tmp_path / "new"):
        with pytest.raises(Problem, match="has no pairs"):
            train("difformer", train=str(tmp_path / "empty.jsonl"), valid=str(dates / "valid.jsonl"), out=out)
    assert not any((tmp_path / "mine").iterdir())
    assert not (tmp_path / "new").exists()


def test_one_folder_has_one_run_at_a_time(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with lock_folder(out):
        for resume in (False, True):
            with pytest.raises(Problem, match="Another process is using"):
                run(dates, out, resume=resume)
        assert not any(out.iterdir())
    assert not out.exists()
    run(dates, out)


def test_a_second_resume_of_a_finished_run_changes_nothing(dates: Path, whole: Path) -> None:
    before = (whole / "model.safetensors").read_bytes()
    run(dates, whole, resume=True)
    assert (whole / "model.safetensors").read_bytes() == before


def _command(dates: Path, out: Path, *more: str, steps: int = 40) -> list[str]:
    sets = [f"--set={name}={value}" for name, value in (CHANGES | {"optim.steps": steps}).items()]
    return [
        *(sys.executable, "-m", "noise2text", "train", "difformer", "--preset", "tiny", "--device", "cpu"),
        *("--train", str(dates / "train.jsonl"), "--valid", str(dates / "valid.jsonl"), "--out", str(out)),
        *sets,
        *more,
    ]


def test_a_process_killed_with_sigkill_ends_the_same(dates: Path, tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    subprocess.run(_command(dates, undisturbed), check=True, env=environment, capture_output=True)
    process = subprocess.Popen(_command(dates, killed), env=environment, stderr=subprocess.DEVNULL)
    while find_checkpoint(killed) is None and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    subprocess.run(_command(dates, killed, "--resume"), check=True, env=environment, capture_output=True)
    for file in ("model.safetensors", "checkpoint-00000040/training.safetensors"):
        assert (undisturbed / file).read_bytes() == (killed / file).read_bytes()


def test_a_process_stopped_with_ctrl_c_says_how_to_go_on(dates: Path, tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = _command(dates, tmp_path / "run", steps=100_000)
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while find_checkpoint(tmp_path / "run") is None and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert "--resume" in stderr
    assert "Traceback" not in stderr


def test_a_half_written_checkpoint_is_not_taken(dates: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Killed):
        run(dates, out, display=DyingDisplay(6))
    (out / "checkpoint.draft").mkdir()
    (out / "checkpoint.draft" / "model.safetensors").write_bytes(b"half")
    assert find_checkpoint(out) == out / "checkpoint-00000004"
    run(dates, out, resume=True)
    assert_same_run(whole, out)


class Interrupter(SilentDisplay):
    """Presses Ctrl-C."""

    def progress(self, step: int, summary: str) -> None:
        if step == 6:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_saves_and_the_run_can_go_on(dates: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped, match="step 6"):
        run(dates, out, display=Interrupter())
    assert find_checkpoint(out) == out / "checkpoint-00000006"
    run(dates, out, resume=True)
    assert_same_run(whole, out)


def test_a_loss_that_is_not_a_number_stops_and_leaves_the_last_good_checkpoint(
    dates: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Killed):
        run(dates, out, display=DyingDisplay(6))
    kept = {file.name: file.read_bytes() for file in (out / "checkpoint-00000004").iterdir()}
    checkpoint = out / "checkpoint-00000004" / "model.safetensors"
    poisoned = out / "poisoned.safetensors"
    _poison(checkpoint, poisoned)
    poisoned.replace(checkpoint)
    (checkpoint.parent / "checksums.json").unlink()
    del kept["checksums.json"]
    kept["model.safetensors"] = checkpoint.read_bytes()
    with pytest.raises(Problem, match=r"not a number at step 5.*checkpoint-00000004 is intact"):
        run(dates, out, resume=True)
    assert {file.name: file.read_bytes() for file in (out / "checkpoint-00000004").iterdir()} == kept
    assert find_checkpoint(out) == out / "checkpoint-00000004"


def _poison(source: Path, target: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(source)
    name = next(name for name in tensors if name.endswith("norm.weight"))
    tensors[name] = torch.full_like(tensors[name], 3e38)  # finite, but no product with it is
    save_file(tensors, target)


def test_a_folder_with_a_run_is_not_overwritten(dates: Path, whole: Path) -> None:
    with pytest.raises(Problem, match="--resume"):
        run(dates, whole)


def test_a_resumed_run_may_train_longer_but_not_otherwise(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(dates, out, changes={"optim.steps": 4})
    with pytest.raises(Problem, match="model_dim"):
        run(dates, out, resume=True, changes={"optim.steps": 4, "model_dim": 64})
    with pytest.raises(Problem, match="with --train"):
        train("difformer", train="other.jsonl", valid=str(dates / "valid.jsonl"), out=out, resume=True)
    run(dates, out, resume=True, changes={"optim.steps": 8})
    assert find_checkpoint(out) == out / "checkpoint-00000008"


class RecordingDisplay(SilentDisplay):
    """A display that records its lines."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def show_line(self, line: str) -> None:
        self.said.append(line)


def test_resume_without_a_run_starts_one_and_says_so(dates: Path, whole: Path, tmp_path: Path) -> None:
    display = RecordingDisplay()
    run(dates, tmp_path / "new", resume=True, display=display)
    assert "no run in" in display.said[0]
    assert_same_run(whole, tmp_path / "new")


def test_a_refused_run_without_a_step_can_be_started_otherwise(dates: Path, tmp_path: Path) -> None:
    """Also where it was called a resumed one, as scripts do."""
    out, empty = tmp_path / "run", tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(Problem, match="has no pairs"):
        train("difformer", train=str(empty), valid=str(dates / "valid.jsonl"), out=out, resume=True)
    assert not out.exists()
    run(dates, out, resume=True, changes={"optim.steps": 4})
    with pytest.raises(Problem, match="with --train"):  # nothing of a run with steps is lost
        train("difformer", train=str(empty), valid=str(dates / "valid.jsonl"), out=out, resume=True)
    assert find_checkpoint(out) == out / "checkpoint-00000004"


def test_damaged_files_of_a_run_are_one_sentence_or_left_out(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(dates, out, changes={"optim.steps": 4, "log_every": 1})
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\n")
    run(dates, out, resume=True, changes={"optim.steps": 8, "log_every": 1})
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == list(range(1, 9))
    (out / "run.json").write_text('{"recipe": ')
    with pytest.raises(Problem, match="is damaged"):
        run(dates, out, resume=True)


@pytest.mark.parametrize(
    "contents",
    [
        {"recipe": "difformer", "settings": [], "train": "a", "valid": "b"},
        {"recipe": "difformer", "settings": {}, "train": 3, "valid": "b"},
        {"recipe": "difformer", "settings": {}, "train": "a"},
        {
            "recipe": "difformer",
            "settings": {},
            "train": "a",
            "valid": "b",
            "corpora": {"train": {"bytes": "x"}},
        },
        ["recipe"],
    ],
)
def test_an_altered_run_file_is_one_sentence(contents: object, dates: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(contents))
    with pytest.raises(Problem, match=r"run\.json is damaged"):
        run(dates, tmp_path, resume=True)


def test_a_damaged_model_that_was_to_be_averaged_is_named_at_once(dates: Path, tmp_path: Path) -> None:
    """It was found only after the last step, where it ended the run."""
    out, said = tmp_path / "run", list[str]()
    with pytest.raises(Killed):
        run(dates, out, display=DyingDisplay(10))
    (out / "best_models" / "00000005" / "model.safetensors").write_bytes(b"half")

    class Listening(SilentDisplay):
        def show_line(self, line: str) -> None:
            said.append(line)

    run(dates, out, resume=True, display=Listening())
    assert "best_models/00000005/model.safetensors is not a whole safetensors file" in said[0]
    assert said[0].endswith("The final average is taken without it.")
    assert load(out, device="cpu").origin is not None
