"""Torch's elastic restart goes on by itself after a worker was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noise2text.training.checkpoint import find_checkpoint

from ..conftest import SMALL

CHANGES = SMALL | {"optim.steps": 30, "save_every": 2, "validate_every": 30, "noise_factor": 2.0}


def command(dates: Path, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=3"),
        *("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--monitor-interval=0.1"),
        *("-m", "noise2text", "train", "difformer", "--preset=tiny", "--device=cpu", "--resume"),
        *(f"--train={dates / 'train.jsonl'}", f"--valid={dates / 'valid.jsonl'}", f"--out={out}"),
        *(f"--set={name}={value}" for name, value in CHANGES.items()),
    ]


def find_workers(agent: int) -> list[int]:
    return list(map(int, Path(f"/proc/{agent}/task/{agent}/children").read_text().split()))


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers as Linux lists them")
def test_a_killed_worker_is_restarted_and_the_run_ends_as_an_undisturbed_one(
    dates: Path, tmp_path: Path
) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    subprocess.run(command(dates, undisturbed), check=True, env=environment, capture_output=True)
    agent = subprocess.Popen(command(dates, killed), env=environment, stderr=subprocess.PIPE, text=True)
    while find_checkpoint(killed) is None and agent.poll() is None:
        time.sleep(0.01)
    os.kill(find_workers(agent.pid)[1], signal.SIGKILL)
    _, stderr = agent.communicate()
    assert agent.returncode == 0, stderr
    assert "resuming after step" in stderr
    weights = [(out / "model.safetensors").read_bytes() for out in (undisturbed, killed)]
    assert weights[0] == weights[1]
