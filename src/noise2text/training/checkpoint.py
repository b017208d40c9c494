"""Checkpoints: the weights, the state of the optimizer, the averaged weights and the step.

A checkpoint is a folder `checkpoint-00000500`, written under another name and renamed when complete, so that
a run killed at any point keeps its last good checkpoint. Tensors are in safetensors, all else in JSON. No
random state is saved: all noise comes from the seed and the step (core/random.py).

A single process writes training.safetensors; several write shards in the folder training. Any number of
processes can resume from either, with whole or sharded models (sharded_checkpoint.py).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.core.files import flush_to_disk, write_atomically
from noise2text.training.averaging import Ema
from noise2text.training.process_group import ProcessGroup

if TYPE_CHECKING:
    from noise2text.training.sharded_checkpoint import TensorSpec

__all__ = ["find_checkpoint", "restore", "save"]

_PATTERN = "checkpoint-[0-9]*[0-9]"


def find_checkpoint(run: Path) -> Path | None:
    """The newest complete checkpoint of a run, if there is one."""
    return max(run.glob(_PATTERN), default=None)


def save(
    run: Path,
    *,
    step: int,
    write_model: Callable[[Path], None],
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    objective: nn.Module,
    ema: Ema | None,
    progress: dict[str, Any],
    group: ProcessGroup = ProcessGroup(),
) -> Path:
    """Write checkpoint `step` and remove the older ones; `write_model` puts the weights into a folder.

    Every process of the group must call this; the main process writes what is not sharded.
    """
    folder, draft = run / f"checkpoint-{step:08d}", run / "checkpoint.draft"
    if group.is_main_process:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        write_model(draft)
    group.barrier()
    buffers = {name: buffer.clone() for name, buffer in _objective_buffers(objective).items()}
    _write_state(_optimizer_tensors(optimizer, module) | _ema_tensors(ema) | buffers, draft, group)
    if group.is_main_process:
        (draft / "training.json").write_text(json.dumps({"step": step, **progress}, indent=2))
        _publish(draft, folder)
    group.barrier()
    return folder


def _publish(draft: Path, folder: Path) -> None:
    """Make a complete draft the newest checkpoint of its run."""
    for file in draft.rglob("*"):  # several processes write shards into a subfolder
        if file.is_file():
            flush_to_disk(file)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(draft, folder)
    for old in folder.parent.glob(_PATTERN):
        if old < folder:
            shutil.rmtree(old, ignore_errors=True)


def restore(
    folder: Path,
    *,
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    objective: nn.Module,
    ema: Ema | None,
    group: ProcessGroup = ProcessGroup(),
) -> dict[str, Any]:
    """Load the optimizer, the averages and the objective's buffers; returns training.json, with the step."""
    try:
        progress: dict[str, Any] = json.loads((folder / "training.json").read_text())
        moments = _read_state(folder, module, _ema_tensors(ema), _objective_buffers(objective), group)
    except (OSError, ValueError, SafetensorError) as error:
        raise Problem(
            f"The checkpoint {folder} cannot be read ({error}): copy it again, or train in another folder."
        ) from error
    state = optimizer.state_dict()
    state["state"] = dict(enumerate(moments))
    optimizer.load_state_dict(state)
    return progress


def _write_state(tensors: dict[str, Tensor], draft: Path, group: ProcessGroup) -> None:
    if group.is_single_process:
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_atomically(draft / "training.safetensors", lambda path: save_file(whole, path))
        return
    from noise2text.training import sharded_checkpoint

    sharded_checkpoint.write_tensors(draft / "training", tensors, group)


def _read_state(
    folder: Path,
    module: nn.Module,
    averages: dict[str, Tensor],
    buffers: dict[str, Tensor],
    group: ProcessGroup,
) -> list[dict[str, Tensor]]:
    """The optimizer's state of each parameter; fills the averages and the objective's buffers."""
    from noise2text.training import sharded_checkpoint

    sharded_folder = folder / "training"
    storage = sharded_folder if sharded_folder.is_dir() else folder
    tensor_specs = sharded_checkpoint.tensor_specs(storage)
    state: list[dict[str, Tensor]] = []
    wanted = averages | {name: buffer for name, buffer in buffers.items() if name in tensor_specs}
    for name, parameter in _trained_parameters(module).items():
        prefix = f"optimiser.{name}."
        allocated = {
            key: _allocate(tensor_specs[key], parameter)
            for key in sorted(tensor_specs)
            if key.startswith(prefix)
        }
        state.append({key.removeprefix(prefix): buffer for key, buffer in allocated.items()})
        wanted |= allocated
    sharded_checkpoint.read_tensors(storage, wanted, group)
    return state


def _allocate(spec: TensorSpec, parameter: nn.Parameter) -> Tensor:
    """An empty tensor to read into, sharded as its parameter if it has the same shape."""
    if spec.shape == parameter.shape:
        return torch.empty_like(parameter, dtype=spec.dtype, requires_grad=False)
    return torch.empty(spec.shape, dtype=spec.dtype)


def _trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _optimizer_tensors(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    names = list(_trained_parameters(module))
    states = optimizer.state_dict()["state"]
    return {
        f"optimiser.{names[index]}.{state_name}": value
        for index, state in states.items()
        for state_name, value in state.items()
    }


def _objective_buffers(objective: nn.Module) -> dict[str, Tensor]:
    """The buffers of the objective and its parts: what it learned from the losses."""
    return {f"observed.{name}": buffer for name, buffer in objective.named_buffers()}


def _ema_tensors(ema: Ema | None) -> dict[str, Tensor]:
    return {f"ema.{name}": value for name, value in ema.averages.items()} if ema else {}
