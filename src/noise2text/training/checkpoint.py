"""Where a run can go on: the state of the optimiser, the averages and the step, beside the weights.

A checkpoint is a folder `checkpoint-00000500`, written under another name and renamed when complete, so that
a run killed at any point leaves the last good one whole. Tensors are in safetensors, facts in JSON.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from noise2text.problem import Problem
from noise2text.training.averaging import Ema

__all__ = ["latest", "restore", "save", "write_whole"]

_PATTERN = "checkpoint-[0-9]*[0-9]"


def latest(run: Path) -> Path | None:
    """The newest complete checkpoint of a run, if there is one."""
    return max(run.glob(_PATTERN), default=None)


def save(
    run: Path,
    *,
    step: int,
    write_model: Callable[[Path], None],
    optimiser: torch.optim.Optimizer,
    module: nn.Module,
    objective: nn.Module,
    ema: Ema | None,
    facts: dict[str, Any],
) -> Path:
    """Write checkpoint `step` and remove the older ones; `write_model` puts the weights into a folder."""
    folder, draft = run / f"checkpoint-{step:08d}", run / "checkpoint.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    write_model(draft)
    tensors = _optimiser_tensors(optimiser, module) | _ema_tensors(ema) | _observed(objective)
    save_file(tensors, draft / "training.safetensors")
    (draft / "training.json").write_text(json.dumps({"step": step, **facts}, indent=2))
    for file in draft.iterdir():
        _flush(file)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(draft, folder)
    for old in run.glob(_PATTERN):
        if old < folder:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def restore(
    folder: Path,
    *,
    optimiser: torch.optim.Optimizer,
    module: nn.Module,
    objective: nn.Module,
    ema: Ema | None,
) -> dict[str, Any]:
    """Put the optimiser and the averages back to a checkpoint's; returns its facts, the step among them."""
    try:
        facts: dict[str, Any] = json.loads((folder / "training.json").read_text())
        tensors = load_file(folder / "training.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise Problem(
            f"The checkpoint {folder} cannot be read ({error}): remove it and resume again."
        ) from error
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    state = optimiser.state_dict()
    for index, name in enumerate(names):
        prefix = f"optimiser.{name}."
        state["state"][index] = {
            k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)
        }
    optimiser.load_state_dict(state)
    if ema is not None:
        for name, average in ema.averages.items():
            average.copy_(tensors[f"ema.{name}"])
    for name, buffer in objective.named_buffers():
        if f"observed.{name}" in tensors:
            buffer.copy_(tensors[f"observed.{name}"])
    return facts


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file under another name, then put it in its place at once."""
    draft = path.with_name(path.name + ".draft")
    write(draft)
    _flush(draft)
    os.replace(draft, path)


def _flush(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _optimiser_tensors(optimiser: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    states = optimiser.state_dict()["state"]
    return {
        f"optimiser.{names[index]}.{what}": value.contiguous()
        for index, state in states.items()
        for what, value in state.items()
    }


def _observed(objective: nn.Module) -> dict[str, Tensor]:
    """What the objective has learned of its losses: its buffers, and those of its parts."""
    return {f"observed.{name}": buffer.clone() for name, buffer in objective.named_buffers()}


def _ema_tensors(ema: Ema | None) -> dict[str, Tensor]:
    return {f"ema.{name}": value.contiguous() for name, value in ema.averages.items()} if ema else {}
