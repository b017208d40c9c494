"""Several processes train what one would have trained with the whole batch.

Weights are compared after some steps of float32 and Adam. The gradient of a key's bias is 0 but for rounding,
since softmax does not see what is added to all its scores; Adam makes large steps of such noise, so these
biases are left out.
"""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from noise2text.commands.train import train
from noise2text.core.config import has_setting
from noise2text.core.errors import Problem
from noise2text.data.batching import BatchPlan
from noise2text.models.registry import find_recipe
from noise2text.training import sharded_checkpoint as sharded_checkpoint
from noise2text.training.checkpoint import find_checkpoint
from noise2text.training.process_group import ProcessGroup

from ..conftest import SMALL
from ..teams import run_processes

COMMON: dict[str, Any] = SMALL | {
    "optim.steps": 6,
    "save_every": 6,
    "validate_every": 6,
    "log_every": 1,
    "validation_sentences": 2,
    "dropout": 0.0,
    "lr_schedule": "inverse-sqrt",  # which does not depend on the last step
    "lr": 1e-3,
    "ema_decay": 0.5,
    "max_tokens": 336,  # seven rows of the widest shape: the processes have different numbers of rows
}
CASES: dict[str, dict[str, Any]] = {
    "difformer": {"accumulate": 2},
    "diffuseq": {"layers": 2, "num_timesteps": 3, "accumulate": 1},
    "seqdiffuseq": {"num_timesteps": 8, "refit_bin_size": 2, "refit_min_count": 1, "refit_every": 2}
    | {"refit_start": 2, "accumulate": 2},
    "transformer": {},
}
FOREIGN: dict[str, dict[str, Any]] = {
    "pretrained-causal": {"optim.steps": 2, "validate_every": 2, "save_every": 2}
}


def train_arguments(
    recipe: str, dates: Path, out: Path, settings: Mapping[str, Any] | None = None, /, **more: Any
) -> dict[str, Any]:
    """The arguments of `train`."""
    tiny, wanted = find_recipe(recipe).preset("tiny"), COMMON | (CASES | FOREIGN)[recipe]
    changes = {name: value for name, value in wanted.items() if has_setting(tiny, name)}
    changes |= {**(settings or {}), **more}
    files = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    return {"recipe": recipe, "out": out, "preset": "tiny", "device": "cpu", "changes": changes, **files}


def losses(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record["loss"] for record in map(json.loads, lines) if "loss" in record]


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def state(run: Path) -> dict[str, Tensor]:
    """The optimiser, the averages and what was observed, from the newest checkpoint."""
    kept = find_checkpoint(run)
    assert kept is not None
    folder = kept / "training" if (kept / "training").is_dir() else kept
    tensors = {
        name: torch.empty(spec.shape, dtype=spec.dtype)
        for name, spec in sharded_checkpoint.tensor_specs(folder).items()
        if name.startswith(("optimiser.", "ema.", "observed."))
    }
    sharded_checkpoint.read_tensors(folder, tensors, ProcessGroup())
    return tensors


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        if not name.removesuffix(".exp_avg").removesuffix(".exp_avg_sq").endswith(KEY_BIASES):
            torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-5, msg=name)


KEY_BIASES = ("self_attention.qkv_projection.bias", "key_value_projection.bias")


def assert_same_run(run: Path, other: Path) -> None:
    assert losses(run) == pytest.approx(losses(other), rel=1e-5)
    for folder in (run, find_checkpoint(run)):
        assert folder is not None
        assert_same(weights(folder), weights(other / folder.relative_to(run)))
    assert_same(state(run), state(other))


@pytest.fixture(scope="module")
def single_run(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of a recipe by one process."""

    @functools.cache
    def run(recipe: str) -> Path:
        out = tmp_path_factory.mktemp("alone") / recipe
        train(**train_arguments(recipe, dates, out))
        return out

    return run


@pytest.mark.parametrize(
    "said",
    [
        {"WORLD_SIZE": "4"},
        {"WORLD_SIZE": "2", "RANK": "first"},
        {"WORLD_SIZE": "2", "RANK": "2"},
        {"WORLD_SIZE": "1", "RANK": "1"},
        {"WORLD_SIZE": "0", "RANK": "0"},
    ],
)
def test_an_environment_that_does_not_say_which_process_this_is_is_refused(
    said: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Problem, match=f"WORLD_SIZE={said['WORLD_SIZE']}.*torchrun"):
        ProcessGroup.from_environment()


@pytest.mark.parametrize("sharded", [False, True], ids=["replicated", "sharded"])
@pytest.mark.parametrize("recipe", CASES)
def test_two_processes_train_what_one_does_with_the_whole_batch(
    recipe: str, single_run: Callable[[str], Path], dates: Path, tmp_path: Path, sharded: bool
) -> None:
    assert run_processes(2, train, **train_arguments(recipe, dates, tmp_path / "two", sharded=sharded)) == [
        0,
        0,
    ]
    assert_same_run(tmp_path / "two", single_run(recipe))


def test_what_the_runs_observe_has_changed_them(single_run: Callable[[str], Path]) -> None:
    """Or the comparison above would say nothing of it."""
    counts = state(single_run("diffuseq"))["observed.time_sampler.counts"]
    assert (counts >= 10).all(), "importance sampling has begun"
    table = weights(single_run("seqdiffuseq"))["schedule.alpha_bars"]
    assert not torch.allclose(table[:, 0], table[:, 1]), "positions have schedules of their own"


@pytest.mark.long
def test_a_decoder_that_reads_by_its_cache_is_sharded_undivided(
    single_run: Callable[[str], Path], dates: Path, tmp_path: Path
) -> None:
    """Its layers give keys away that are not among their outputs."""
    arguments = train_arguments("pretrained-causal", dates, tmp_path / "two", sharded=True)
    assert run_processes(2, train, **arguments) == [0, 0]
    assert losses(tmp_path / "two") == pytest.approx(losses(single_run("pretrained-causal")), rel=1e-5)


@pytest.mark.parametrize(
    "before, after",
    [((1, False), (2, True)), ((2, False), (1, False)), ((2, True), (3, False))],
    ids=["one, then two shards", "two, then one", "two shards, then three"],
)
def test_any_number_of_processes_goes_on(
    before: tuple[int, bool],
    after: tuple[int, bool],
    single_run: Callable[[str], Path],
    dates: Path,
    tmp_path: Path,
) -> None:
    out, whole = tmp_path / "run", single_run("difformer")
    for (world_size, sharded), steps in ((before, 3), (after, 6)):
        part = train_arguments("difformer", dates, out, {"optim.steps": steps}, sharded=sharded)
        assert run_processes(world_size, train, **part, resume=steps > 3) == [0] * world_size
    assert_same(weights(out / "checkpoint-00000006"), weights(whole / "checkpoint-00000006"))
    assert_same(state(out), state(whole))
    assert losses(out) == pytest.approx(losses(whole), rel=1e-5)


@pytest.mark.parametrize("sharded", [False, True], ids=["replicated", "sharded"])
def test_a_loss_that_is_not_a_number_stops_all(dates: Path, tmp_path: Path, sharded: bool) -> None:
    """Each time: torch's threads are still busy when the error comes, and must not be waited for."""
    for attempt in range(5):
        out = tmp_path / str(attempt)
        broken = train_arguments("difformer", dates, out, lr=1e30, clip_norm=0.0, sharded=sharded)
        assert run_processes(2, train, **broken) == [1, 1]
        assert find_checkpoint(out) is None


def test_a_folder_with_a_run_stops_all_and_stays(single_run: Callable[[str], Path], dates: Path) -> None:
    out = single_run("difformer")
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    assert run_processes(2, train, **train_arguments("difformer", dates, out)) == [1, 1]
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == before


@pytest.mark.long
def test_torchrun_stops_all_processes_which_go_on_later(dates: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    start = train_arguments("difformer", dates, out, {"optim.steps": 100_000}, save_every=2)
    running = subprocess.Popen(command(start), stderr=subprocess.PIPE, text=True)
    while find_checkpoint(out) is None and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    said = running.communicate()[1]
    assert said.count("continue with --resume") == 1
    kept = find_checkpoint(out)
    assert kept is not None
    steps = int(kept.name.removeprefix("checkpoint-"))
    assert f"Stopped after step {steps:,}" in said
    more = command(train_arguments("difformer", dates, out, {"optim.steps": steps + 1}))
    subprocess.run([*more, "--resume"], check=True, capture_output=True)
    assert find_checkpoint(out) == out / f"checkpoint-{steps + 1:08d}"
    assert weights(out).keys() == weights(kept.with_name(f"checkpoint-{steps + 1:08d}")).keys()


def command(train_arguments: dict[str, Any]) -> list[str]:
    """The command line that does the same with two processes."""
    options = [f"--{name}={train_arguments[name]}" for name in ("train", "valid", "out", "preset", "device")]
    sets = [f"--set={name}={value}" for name, value in train_arguments["changes"].items()]
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return [*torchrun, "-m", "noise2text", "train", train_arguments["recipe"], *options, *sets]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_shares_are_all_of_the_batch_each_row_once(world_size: int) -> None:
    for rows in range(world_size, 40):
        shares = [
            np.arange(rows)[ProcessGroup(rank, world_size).slice_rows(rows)] for rank in range(world_size)
        ]
        assert np.concatenate(shares).tolist() == list(range(rows))
        sizes = list(map(len, shares))
        assert max(sizes) - min(sizes) <= 1


def test_a_batch_too_small_for_all_is_refused() -> None:
    with pytest.raises(
        Problem, match="3 processes cannot share a batch of 2 rows: raise the setting max_tokens"
    ):
        ProcessGroup(0, 3).slice_rows(2)


def test_no_pair_is_seen_twice_in_an_epoch() -> None:
    """But for those that fill up the last batch, as with one process."""
    lengths = np.random.default_rng(0).integers(1, 40, (500, 2))
    plans = [BatchPlan(lengths, max_tokens=256, seed=3) for _ in range(3)]
    seen = []
    for number in range(plans[0].batches_per_epoch):
        batches = [plan.batch(number) for plan in plans]
        seen += [
            batch.pairs[ProcessGroup(rank, 3).slice_rows(len(batch.pairs))]
            for rank, batch in enumerate(batches)
        ]
    pairs, counts = np.unique(np.concatenate(seen), return_counts=True)
    whole = np.concatenate([batch.pairs for batch in plans[0].epoch_batches(0)])
    assert len(pairs) == 500
    assert (
        counts.sum() - 500 == len(whole) - 500 < max(len(batch.pairs) for batch in plans[0].epoch_batches(0))
    )


def test_more_processes_than_gpus_are_refused_unless_they_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    first, third = (ProcessGroup(rank, 4, local_rank=rank) for rank in (0, 2))
    assert first.device(None) == "cuda:0"
    with pytest.raises(Problem, match=r"more processes here than GPUs \(2\).*--device cuda:0"):
        third.device("cuda")
    assert third.device("cuda:0") == "cuda:0"
