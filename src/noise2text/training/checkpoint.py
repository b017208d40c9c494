"""Checkpoints: the weights, the state of the optimizer, the averaged weights and the step.

A checkpoint is a folder `checkpoint-00000500`, written under another name and renamed when complete, so that
a run killed at any point keeps its last good checkpoint. Tensors are in safetensors, all else in JSON. No
random state is saved: all noise comes from the seed and the step (core/random.py). checksums.json holds the
SHA-256 of every other file. The newest two checkpoints are kept: if the newest is damaged, a run resumes from
the one before. `TrainingRun` (commands/training_run.py) loads what `find_checkpoint` finds.

A single process writes training.safetensors; several write shards in the folder training. Any number of
processes can resume from either, with whole or sharded models (sharded_checkpoint.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.core.files import (
    explain_write_failures,
    flush_folder,
    flush_to_disk,
    hash_file,
    write_atomically,
)
from noise2text.core.json_files import read_json_object
from noise2text.training.averaging import Ema
from noise2text.training.process_group import ProcessGroup

if TYPE_CHECKING:
    from noise2text.training.sharded_checkpoint import TensorSpec

__all__ = [
    "delete_discarded",
    "delete_drafts",
    "discard",
    "find_checkpoint",
    "find_damage",
    "list_checkpoints",
    "read_progress",
    "restore",
    "save",
]

CHECKSUMS_FILE = "checksums.json"
NUM_KEPT = 2
"""How many checkpoints a run keeps."""

_NAME = re.compile(r"checkpoint-(\d{8,})")
_DISCARDED_SUFFIX = ".discarded"
_DRAFT = "checkpoint.draft"


def list_checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, the newest last; a copy with another name is not one of them."""
    steps = {path: _NAME.fullmatch(path.name) for path in run.glob("checkpoint-*")}
    found = [(int(match[1]), path) for path, match in steps.items() if match]
    return [path for _, path in sorted(found)]


def find_checkpoint(run: Path) -> Path | None:
    """The newest complete checkpoint of a run, if there is one."""
    return next(reversed(list_checkpoints(run)), None)


def find_damage(folder: Path) -> str | None:
    """The name of a file that is not as the checkpoint was saved; None if all are, or it has no checksums."""
    file = folder / CHECKSUMS_FILE
    if not file.exists():
        return None  # written before there were checksums
    try:
        checksums: dict[str, str] = dict(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return CHECKSUMS_FILE
    for name, checksum in checksums.items():
        try:
            if hash_file(folder / name) != checksum:
                return name
        except OSError:
            return name
    return None


def discard(folder: Path) -> None:
    """Rename a checkpoint, so that it is not one of the run's any more; `delete_discarded` deletes it.

    Deleting takes a while, and a process that is killed meanwhile leaves a part: a part must not have the
    name of a checkpoint.
    """
    discarded = folder.with_name(folder.name + _DISCARDED_SUFFIX)
    shutil.rmtree(discarded, ignore_errors=True)
    os.rename(folder, discarded)


def delete_discarded(run: Path) -> None:
    """Delete the checkpoints of a run that were discarded, also by a process that was killed."""
    for folder in run.glob(f"checkpoint-*{_DISCARDED_SUFFIX}"):
        if _NAME.fullmatch(folder.name.removesuffix(_DISCARDED_SUFFIX)):
            shutil.rmtree(folder, ignore_errors=True)


def delete_drafts(run: Path) -> None:
    """Delete what a killed process was writing to a run, before anything else needs the space."""
    shutil.rmtree(run / _DRAFT, ignore_errors=True)
    for written in ("*.safetensors", "*.json", "*.jsonl", "*.md"):
        for draft in run.glob(f"{written}.draft"):
            draft.unlink(missing_ok=True)


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
    """Write checkpoint `step` and keep one before it; `write_model` puts the weights into a folder.

    Every process of the group must call this; the main process writes what is not sharded.
    """
    folder, draft = run / f"checkpoint-{step:08d}", run / _DRAFT
    with explain_write_failures(folder), _remove_on_failure(draft):
        if group.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            write_model(draft)
        group.barrier()
        buffers = {name: buffer.clone() for name, buffer in _objective_buffers(objective).items()}
        _write_state(_optimizer_tensors(optimizer, module) | _ema_tensors(ema) | buffers, draft, group)
        if group.rank == 0:
            (draft / "training.json").write_text(json.dumps({"step": step, **progress}, indent=2))
            _publish(draft, folder)
    group.barrier()
    return folder


@contextmanager
def _remove_on_failure(draft: Path) -> Iterator[None]:
    """Context manager: an error, such as a full disk, removes the draft and the space that it takes."""
    try:
        yield
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _publish(draft: Path, folder: Path) -> None:
    """Make a complete draft the newest checkpoint of its run."""
    files = [path for path in draft.rglob("*") if path.is_file()]  # several processes write into a subfolder
    checksums = {file.relative_to(draft).as_posix(): hash_file(file) for file in files}
    (draft / CHECKSUMS_FILE).write_text(json.dumps(checksums, indent=2))
    for file in (*files, draft / CHECKSUMS_FILE):
        flush_to_disk(file)
    if folder.exists():
        discard(folder)
    os.rename(draft, folder)
    flush_folder(folder.parent)
    for old in list_checkpoints(folder.parent)[:-NUM_KEPT]:
        discard(old)
    delete_discarded(folder.parent)


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
        progress = read_progress(folder)
        moments = _read_state(folder, module, _ema_tensors(ema), _objective_buffers(objective), group)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise Problem(
            f"The checkpoint {folder} cannot be read ({error}): copy it again, or train in another folder."
        ) from error
    state = optimizer.state_dict()
    state["state"] = dict(enumerate(moments))
    optimizer.load_state_dict(state)
    return progress


def read_progress(folder: Path) -> dict[str, Any]:
    """The contents of a checkpoint's training.json: the step, the best models and what is not logged yet."""
    path = folder / "training.json"
    progress = read_json_object(path)
    best, unlogged = progress.get("best"), progress.get("unlogged", {})
    if (
        type(progress.get("step")) is not int
        or not isinstance(best, list)
        or not all(isinstance(each, list) and len(each) in (2, 3) for each in best)
        or not all(isinstance(value, int | float) for each in best for value in each)
        or not isinstance(unlogged, dict)
    ):
        raise Problem(
            f"{path} is damaged: copy the checkpoint again, or delete it to resume from another one."
        )
    return progress


def _write_state(tensors: dict[str, Tensor], draft: Path, group: ProcessGroup) -> None:
    if group.world_size == 1:
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
