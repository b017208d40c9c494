"""How a model is distributed over the processes that train it.

- SingleProcess: one process has all of it.
- DataParallel: every process has all of it (torch's DistributedDataParallel).
- FullySharded: each process has 1/n of every weight, gradient and moment, and a block's weights are gathered
  only while it computes (FSDP2, torch's fully_shard).

The latter two average the gradients over the processes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import TokenLoss
from noise2text.training.averaging import Ema
from noise2text.training.objective import Objective
from noise2text.training.process_group import ProcessGroup

__all__ = ["DataParallel", "FullySharded", "SingleProcess", "TrainingStrategy", "distribute"]

BuildCopy = Callable[[], tuple[Any, Objective]]
"""Builds another model of the same shape, and its objective."""


class TrainingStrategy:
    """How the training loop uses a model and its processes; by default each process has all of the model."""

    def __init__(self, objective: Objective, model: nn.Module, group: ProcessGroup) -> None:
        self.objective, self.model, self.group = objective, model, group
        self.module: Any = objective  # maybe wrapped; called with a canvas and its draws
        self.unsharded: tuple[Any, Objective] | None = (model, objective)

    def no_sync(self) -> AbstractContextManager[None]:
        """The context of all passes of a step but the last, which averages the gradients."""
        return nullcontext()

    def clip_norm(self, parameters: Sequence[Tensor], max_norm: float) -> Tensor:
        """The norm of the gradient before it is clipped to `max_norm`."""
        return nn.utils.clip_grad_norm_(parameters, max_norm)

    def adapt(self, step: int) -> None:
        """Let the objective adapt to the losses that it observed."""
        self.objective.adapt(step)

    def gather_weights(self, ema: Ema | None = None) -> AbstractContextManager[None]:
        """Context manager: `unsharded` is the whole model with its objective, averaged if `ema` is given.

        Every process must enter; `unsharded` is None on all but the main process.
        """
        return ema.average_parameters() if ema else nullcontext()


class SingleProcess(TrainingStrategy):
    """One process has all of the model."""


class _ObjectiveModule(nn.Module):
    """The objective as a module that owns every trained weight: terms may use other parts of the model."""

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        super().__init__()
        self.objective, self.model = objective, model

    def forward(self, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        losses: dict[str, TokenLoss] = self.objective(canvas, draws)
        return losses


class DataParallel(TrainingStrategy):
    """Every process has all of the model."""

    def __init__(self, objective: Objective, model: nn.Module, group: ProcessGroup) -> None:
        super().__init__(objective, model, group)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about a newer name, which older torch lacks
            # The observed losses are gathered, so the buffers are equal already.
            self.module = DistributedDataParallel(_ObjectiveModule(objective, model), broadcast_buffers=False)
        if group.rank != 0:
            self.unsharded = None

    def no_sync(self) -> AbstractContextManager[None]:
        context: AbstractContextManager[None] = self.module.no_sync()
        return context


class FullySharded(TrainingStrategy):
    """Every process has a shard of each weight; the main process has a whole copy too, for validation."""

    def __init__(
        self, objective: Objective, model: nn.Module, group: ProcessGroup, build_copy: BuildCopy
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        super().__init__(objective, model, group)
        self.unsharded = build_copy() if group.rank == 0 else None
        mesh = init_device_mesh(next(model.parameters()).device.type, (group.world_size,))
        module = _ObjectiveModule(objective, model)
        for block in dict.fromkeys(_find_blocks(module)):  # the objective and the model share blocks
            fully_shard(block, mesh=mesh)
        self.module = fully_shard(module, mesh=mesh)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.module.set_requires_gradient_sync(False)
        yield
        self.module.set_requires_gradient_sync(True)

    def clip_norm(self, parameters: Sequence[Tensor], max_norm: float) -> Tensor:
        return _to_full_tensor(super().clip_norm(parameters, max_norm))

    def adapt(self, step: int) -> None:
        self.module.unshard()  # an objective may read the embeddings
        super().adapt(step)
        self.module.reshard()

    @contextmanager
    def gather_weights(self, ema: Ema | None = None) -> Iterator[None]:
        averages = ema.averages if ema else {}
        self._copy_into_unsharded(_named_tensors(self.model) | averages, index=0)
        self._copy_into_unsharded(dict(self.objective.named_buffers()), index=1)
        yield

    def _copy_into_unsharded(self, state: Mapping[str, Tensor], *, index: int) -> None:
        """Gather tensors one at a time into the whole copy's model (index 0) or objective (index 1)."""
        target = None if self.unsharded is None else self.unsharded[index]
        targets = {} if target is None else _named_tensors(target)
        for name, tensor in state.items():
            value = _to_full_tensor(tensor.detach())
            if name in targets:
                targets[name].detach().copy_(value)  # not `.data`: caches compare the version of a tensor


def distribute(whole: TrainingStrategy, *, sharded: bool, build_copy: BuildCopy) -> TrainingStrategy:
    """The same model, distributed over the processes of its group."""
    if sharded:
        return FullySharded(whole.objective, whole.model, whole.group, build_copy)
    return DataParallel(whole.objective, whole.model, whole.group)


def _named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, each under its first name only."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def _to_full_tensor(tensor: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _find_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The blocks that are gathered one by one, such as a transformer's layers: members of ModuleLists.

    A module with `shard_whole` has none: it is gathered for the whole step.
    """
    if getattr(module, "shard_whole", False):
        return
    for child in module.children():
        yield from child if isinstance(child, nn.ModuleList) else _find_blocks(child)
