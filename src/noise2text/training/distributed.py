"""How a model lies over the processes that train it.

- Alone: on one process.
- Replicated: whole on each (torch's DistributedDataParallel).
- Sharded: each process keeps 1/n of every weight, gradient and moment, and a block's weights are whole only
  while it works (FSDP2, torch's fully_shard).

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
from noise2text.training.step_runner import Autocast, EagerStep

__all__ = ["DataParallel", "DistributedStep", "FullySharded", "SingleProcess", "distribute"]

BuildCopy = Callable[[], tuple[Any, Objective]]
"""Makes another system of the same shape, and its objective."""


class SingleProcess:
    """One process with all of the model; what the other engines are to the training loop."""

    def __init__(self, objective: Objective, model: nn.Module, group: ProcessGroup) -> None:
        self.objective, self.model, self.group = objective, model, group
        self.unsharded: tuple[Any, Objective] | None = (model, objective)

    def __call__(self, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        """The objective's tallies of this process's rows."""
        token_losses: dict[str, TokenLoss] = self.objective(canvas, draws)
        return token_losses

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Around a forward and a backward pass; after the last of a step the gradients are those of all."""
        return nullcontext()

    def clip_norm(self, parameters: Sequence[Tensor], max_norm: float) -> Tensor:
        """The norm of the gradient, which is made no larger than `max_norm`."""
        return nn.utils.clip_grad_norm_(parameters, max_norm)

    def update(self, step: int) -> None:
        """Let the objective adapt to what it observed."""
        self.objective.update(step)

    def gather_weights(self, ema: Ema | None = None) -> AbstractContextManager[None]:
        """Within, `unsharded` is a whole system and its objective, of the averages if given.

        Every process enters; `unsharded` is none for those that have nothing to look at.
        """
        return ema.average_parameters() if ema else nullcontext()


class _ObjectiveModule(nn.Module):
    """The objective as a module that holds all that is trained: its terms may use parts of the system."""

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        super().__init__()
        self.objective, self.model = objective, model

    def forward(self, canvas: Canvas, draws: Any) -> dict[str, tuple[Tensor, Tensor]]:
        # Plain tuples: torch looks into them for the tensors whose gradients it waits for.
        token_losses: dict[str, TokenLoss] = self.objective(canvas, draws)
        return {name: (loss.values, loss.mask) for name, loss in token_losses.items()}


class DataParallel(SingleProcess):
    """All of the model on each process."""

    def __init__(self, objective: Objective, model: nn.Module, group: ProcessGroup) -> None:
        super().__init__(objective, model, group)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of a newer name, which older torch lacks
            # What is observed is gathered, so buffers are equal already.
            self.wrapped = DistributedDataParallel(
                _ObjectiveModule(objective, model), broadcast_buffers=False
            )
        if not group.is_main_process:
            self.unsharded = None

    def __call__(self, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        return {name: TokenLoss(*pair) for name, pair in self.wrapped(canvas, draws).items()}

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.wrapped.no_sync()


class FullySharded(SingleProcess):
    """A part of every weight on each process; the first one has a whole copy beside it, to look at."""

    def __init__(
        self, objective: Objective, model: nn.Module, group: ProcessGroup, build_copy: BuildCopy
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        super().__init__(objective, model, group)
        self.unsharded = build_copy() if group.is_main_process else None
        mesh = init_device_mesh(next(model.parameters()).device.type, (group.world_size,))
        wrapped = _ObjectiveModule(objective, model)
        for block in dict.fromkeys(_find_blocks(wrapped)):  # objective and system share theirs
            fully_shard(block, mesh=mesh)
        self.wrapped: Any = fully_shard(wrapped, mesh=mesh)

    def __call__(self, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        return {name: TokenLoss(*pair) for name, pair in self.wrapped(canvas, draws).items()}

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        self.wrapped.set_requires_gradient_sync(last)
        yield

    def clip_norm(self, parameters: Sequence[Tensor], max_norm: float) -> Tensor:
        return _to_full_tensor(super().clip_norm(parameters, max_norm))

    def update(self, step: int) -> None:
        self.wrapped.unshard()  # an objective may look at the embeddings
        super().update(step)
        self.wrapped.reshard()

    @contextmanager
    def gather_weights(self, ema: Ema | None = None) -> Iterator[None]:
        averages = ema.averages if ema else {}
        self._copy_into_unsharded(_named_tensors(self.model) | averages, index=0)
        self._copy_into_unsharded(dict(self.objective.named_buffers()), index=1)
        yield

    def _copy_into_unsharded(self, state: Mapping[str, Tensor], *, index: int) -> None:
        """Put tensors into the twin's system or objective, one at a time; all processes give their parts."""
        target = None if self.unsharded is None else self.unsharded[index]
        targets = {} if target is None else _named_tensors(target)
        for name, tensor in state.items():
            value = _to_full_tensor(tensor.detach())
            if name in targets:
                targets[name].detach().copy_(value)  # not by `data`: who keeps what they made is to notice


class DistributedStep(EagerStep):
    """A pass, operation by operation, through the model that an engine holds."""

    def __init__(self, autocast: Autocast, parallel: SingleProcess) -> None:
        super().__init__(autocast)
        self.parallel = parallel

    def forward(self, objective: Objective, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        return self.parallel(canvas, draws)


def distribute(
    objective: Objective, model: nn.Module, group: ProcessGroup, *, sharded: bool, build_copy: BuildCopy
) -> SingleProcess:
    """The engine for this many processes."""
    if group.is_single_process:
        return SingleProcess(objective, model, group)
    return (
        FullySharded(objective, model, group, build_copy)
        if sharded
        else DataParallel(objective, model, group)
    )


def _named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, each under its first name only."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def _to_full_tensor(tensor: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _find_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The repeated parts, such as a transformer's layers: the members of the outermost lists.

    A module that is `shard_whole` has none: it is whole for all of a step.
    """
    if getattr(module, "shard_whole", False):
        return
    for child in module.children():
        yield from child if isinstance(child, nn.ModuleList) else _find_blocks(child)
