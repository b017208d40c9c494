"""Callbacks and loggers: what they receive, and that a resumed run sends a logger nothing twice."""

from __future__ import annotations

import json
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from noise2text import TrainingCallback, TrainingStart, train
from noise2text.core.errors import Problem
from noise2text.training.loggers import build_loggers

from ..conftest import SMALL

LAST, SAVED, KILLED = 6, 3, 5
Curves = dict[str, dict[int, float]]
"""The values of each metric by step."""


def run_training(dates: Path, out: Path, **arguments: Any) -> None:
    changes = SMALL | {"noise_factor": 2.0, "generation.steps": 2, "log_every": 1, "optim.steps": LAST}
    changes |= {"validate_every": 2, "save_every": SAVED} | arguments.pop("changes", {})
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train("difformer", out=out, preset="tiny", changes=changes, device="cpu", **files, **arguments)


class Recorder(TrainingCallback):
    """Notes all it is told, and breaks down at one step if it is told to."""

    def __init__(self, breaks_at: int = 0) -> None:
        self.breaks_at = breaks_at
        self.events: list[tuple[Any, ...]] = []

    def on_start(self, start: TrainingStart) -> None:
        self.events.append(("start", start.recipe, start.first_step, start.last_step))

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        self.events.append(("log", step, dict(values)))
        if step == self.breaks_at:
            raise RuntimeError("the power is gone")

    def on_validation(self, step: int, scores: Mapping[str, float]) -> None:
        self.events.append(("validation", step, dict(scores)))

    def on_checkpoint(self, step: int, folder: Path) -> None:
        self.events.append(("checkpoint", step, (folder / "model.safetensors").exists()))

    def on_end(self, error: BaseException | None) -> None:
        self.events.append(("end", error and str(error)))


def file_curves(run: Path) -> Curves:
    """The curves in metrics.jsonl, each of whose points must be there once."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return collect((line.pop("step"), line) for line in lines)


def collect(points: Iterator[tuple[int, dict[str, float]]]) -> Curves:
    curves: Curves = {}
    for step, values in points:
        for name, value in values.items():
            assert step not in curves.setdefault(name, {}), f"{name} of step {step} is there twice"
            curves[name][step] = value
    return curves


def test_callbacks_hear_of_every_event_in_order_and_of_the_values_in_the_file(
    dates: Path, tmp_path: Path
) -> None:
    recorder = Recorder()
    run_training(dates, tmp_path / "run", callbacks=[recorder])
    steps = [event[:2] for event in recorder.events]
    expected: list[tuple[Any, ...]] = [("start", "difformer")]
    for step in range(1, LAST + 1):
        expected.append(("log", step))
        expected += [("validation", step)] if step % 2 == 0 else []
        expected += [("checkpoint", step)] if step % SAVED == 0 else []
    assert steps == [*expected, ("end", None)]
    assert recorder.events[0] == ("start", "difformer", 1, LAST)
    assert all(event[2] for event in recorder.events if event[0] == "checkpoint")
    logged = collect((step, values) for kind, step, values in recorder.events[1:-1] if kind == "log")
    file = file_curves(tmp_path / "run")
    assert logged == {name: curve for name, curve in file.items() if not name.startswith("valid_")}


def test_a_baseline_without_steps_is_followed_as_well(dates: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    train("copy", train=dates / "train.jsonl", out=tmp_path, device="cpu", callbacks=[recorder])
    kinds = [event[0] for event in recorder.events]
    assert (kinds, recorder.events[0]) == (["start", "validation", "end"], ("start", "copy", 0, 0))


def tensorboard_curves(run: Path) -> Curves:
    """The curves as TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return collect(
        (scalar.step, {name: scalar.value})
        for name in events.Tags()["scalars"]
        for scalar in events.Scalars(name)
    )


def wandb_records(file: Path) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format, after a header of seven bytes."""
    data, position, record = file.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def wandb_curves(run: Path) -> Curves:
    """The curves in the files that `wandb sync` would upload, all of which are of one run."""
    from wandb.proto import wandb_internal_pb2

    files = sorted((run / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2, "one for the killed process, one for the resumed one"
    assert len({file.name for file in files}) == 1, "both have the same id"
    rows = []
    for file in files:
        for data in wandb_records(file):
            record: Any = wandb_internal_pb2.Record.FromString(data)  # type: ignore[attr-defined]
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}
                rows.append({name: value for name, value in row.items() if not name.startswith("_")})
    return collect((int(row.pop("step")), row) for row in rows)


def trackio_curves(run: Path) -> Curves:
    """The curves as trackio itself reads them."""
    from trackio.sqlite_storage import SQLiteStorage

    (name,) = SQLiteStorage.get_runs("noise2text")
    rows = SQLiteStorage.get_logs("noise2text", name)
    return collect(
        (row["step"], {key: row[key] for key in row if key not in ("step", "timestamp")}) for row in rows
    )


READERS: dict[str, Callable[[Path], Curves]] = {
    "tensorboard": tensorboard_curves,
    "wandb": wandb_curves,
    "trackio": trackio_curves,
}


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "TRACKIO_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "services"))


@pytest.mark.parametrize("name", READERS)
def test_a_resumed_run_tells_a_logger_nothing_twice_and_nothing_else(
    name: str, dates: Path, tmp_path: Path, offline: None
) -> None:
    """The run ends at step 5 without a checkpoint since step 3, and so repeats steps 4 and 5."""
    out = tmp_path / "run"
    with pytest.raises(RuntimeError, match="the power is gone"):
        run_training(dates, out, changes={"loggers": name}, callbacks=[Recorder(breaks_at=KILLED)])
    resumed = Recorder()
    run_training(dates, out, changes={"loggers": name}, callbacks=[resumed], resume=True)
    assert resumed.events[0] == ("start", "difformer", SAVED + 1, LAST)
    curves, file = READERS[name](out), file_curves(out)
    assert curves.keys() == file.keys()
    for metric, curve in file.items():
        assert curves[metric].keys() == curve.keys()
        if metric != "tokens_per_second":  # a repeated step takes another time
            assert curves[metric] == pytest.approx(curve, rel=1e-6)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"id": "a", "log": "b", "validation": 1}'])
def test_a_damaged_note_of_a_logger_is_named(damage: str, dates: Path, tmp_path: Path, offline: None) -> None:
    """The checkpoints are as they were, so the run goes on once the note is gone."""
    out, changes = tmp_path / "run", {"loggers": "trackio"}
    with pytest.raises(RuntimeError, match="the power is gone"):
        run_training(dates, out, changes=changes, callbacks=[Recorder(breaks_at=KILLED)])
    (out / "trackio.json").write_text(damage)
    with pytest.raises(Problem, match=r"trackio\.json"):
        run_training(dates, out, changes=changes, resume=True)
    (out / "trackio.json").unlink()
    run_training(dates, out, changes=changes, resume=True)
    assert set(file_curves(out)["loss"]) == set(range(1, LAST + 1))


def test_a_run_that_breaks_down_tells_every_callback_why(dates: Path, tmp_path: Path) -> None:
    before, after = Recorder(), Recorder()
    with pytest.raises(RuntimeError):
        run_training(dates, tmp_path / "run", callbacks=[before, Recorder(breaks_at=2), after])
    assert before.events[-1] == after.events[-1] == ("end", "the power is gone")
    assert Counter(event[0] for event in after.events)["log"] == 1


def test_an_unknown_logger_is_named_with_those_that_exist() -> None:
    with pytest.raises(Problem, match=r"no logger 'wand'; did you mean wandb\?"):
        build_loggers("tensorboard, wand")


def test_a_logger_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[wandb\]'"):
        build_loggers("wandb")
