"""Where a run can go on: the state of the optimiser, the averages and the step, beside the weights.

A checkpoint is a folder `checkpoint-00000500`, written under another name and renamed when complete, so that
a run killed at any point leaves the last good one whole. Tensors are in safetensors, facts in JSON.

One process writes training.safetensors; several write parts of it, in the folder training. Any number of
processes can go on with either, whether the model lies whole or in shards on them (training/parts.py).
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
from noise2text.core.files import flush_to_disk, write_whole
from noise2text.training.averaging import Ema
from noise2text.training.process_group import Team

if TYPE_CHECKING:
    from noise2text.training.sharded_checkpoint import Kind

__all__ = ["latest", "restore", "save"]

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
    team: Team = Team(),
) -> Path:
    """Write checkpoint `step` and remove the older ones; `write_model` puts the weights into a folder.

    Every process of the team comes here; the first one writes what is not shared.
    """
    folder, draft = run / f"checkpoint-{step:08d}", run / "checkpoint.draft"
    if team.is_first:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        write_model(draft)
    team.wait()
    observed = {name: buffer.clone() for name, buffer in _observed(objective).items()}
    _write_state(_optimiser_tensors(optimiser, module) | _ema_tensors(ema) | observed, draft, team)
    if team.is_first:
        (draft / "training.json").write_text(json.dumps({"step": step, **facts}, indent=2))
        _put_in_place(draft, folder)
    team.wait()
    return folder


def _put_in_place(draft: Path, folder: Path) -> None:
    """Make a complete draft the newest checkpoint of its run."""
    for file in draft.rglob("*"):  # several processes write theirs into a folder of its own
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
    optimiser: torch.optim.Optimizer,
    module: nn.Module,
    objective: nn.Module,
    ema: Ema | None,
    team: Team = Team(),
) -> dict[str, Any]:
    """Put the optimiser and the averages back to a checkpoint's; returns its facts, the step among them."""
    try:
        facts: dict[str, Any] = json.loads((folder / "training.json").read_text())
        moments = _read_state(folder, module, _ema_tensors(ema), _observed(objective), team)
    except (OSError, ValueError, SafetensorError) as error:
        raise Problem(
            f"The checkpoint {folder} cannot be read ({error}): copy it again, or train in another folder."
        ) from error
    state = optimiser.state_dict()
    state["state"] = dict(enumerate(moments))
    optimiser.load_state_dict(state)
    return facts


def _write_state(tensors: dict[str, Tensor], draft: Path, team: Team) -> None:
    if team.is_alone:
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_whole(draft / "training.safetensors", lambda path: save_file(whole, path))
        return
    from noise2text.training import sharded_checkpoint as parts

    parts.write(draft / "training", tensors, team)


def _read_state(
    folder: Path, module: nn.Module, averages: dict[str, Tensor], observed: dict[str, Tensor], team: Team
) -> list[dict[str, Tensor]]:
    """The optimiser's state of each parameter; averages and what was observed are filled."""
    from noise2text.training import sharded_checkpoint as parts

    shared = folder / "training"
    place = shared if shared.is_dir() else folder
    kinds = parts.kinds(place)
    state: list[dict[str, Tensor]] = []
    wanted = averages | {name: buffer for name, buffer in observed.items() if name in kinds}
    for name, parameter in _trained(module).items():
        prefix = f"optimiser.{name}."
        rooms = {kept: _room(kinds[kept], parameter) for kept in sorted(kinds) if kept.startswith(prefix)}
        state.append({kept.removeprefix(prefix): room for kept, room in rooms.items()})
        wanted |= rooms
    parts.read(place, wanted, team)
    return state


def _room(kind: Kind, parameter: nn.Parameter) -> Tensor:
    """Where a kept tensor is read to: it lies over the processes as its parameter does, if it is as large."""
    if kind.shape == parameter.shape:
        return torch.empty_like(parameter, dtype=kind.dtype, requires_grad=False)
    return torch.empty(kind.shape, dtype=kind.dtype)


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _optimiser_tensors(optimiser: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    names = list(_trained(module))
    states = optimiser.state_dict()["state"]
    return {
        f"optimiser.{names[index]}.{what}": value
        for index, state in states.items()
        for what, value in state.items()
    }


def _observed(objective: nn.Module) -> dict[str, Tensor]:
    """What the objective has learned of its losses: its buffers, and those of its parts."""
    return {f"observed.{name}": buffer for name, buffer in objective.named_buffers()}


def _ema_tensors(ema: Ema | None) -> dict[str, Tensor]:
    return {f"ema.{name}": value for name, value in ema.averages.items()} if ema else {}
