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

from noise2text.data.layouts.canvas import Canvas
from noise2text.diffusion.losses import Tally
from noise2text.training.averaging import Ema
from noise2text.training.objective import Objective
from noise2text.training.process_group import Team
from noise2text.training.step_runner import Autocast, Plain

__all__ = ["Alone", "Replicated", "Sharded", "Through", "engage"]

Twin = Callable[[], tuple[Any, Objective]]
"""Makes another system of the same shape, and its objective."""


class Alone:
    """One process with all of the model; what the other engines are to the training loop."""

    def __init__(self, objective: Objective, system: nn.Module, team: Team) -> None:
        self.objective, self.system, self.team = objective, system, team
        self.shown: tuple[Any, Objective] | None = (system, objective)

    def __call__(self, canvas: Canvas, draws: Any) -> dict[str, Tally]:
        """The objective's tallies of this process's rows."""
        tallies: dict[str, Tally] = self.objective(canvas, draws)
        return tallies

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Around a forward and a backward pass; after the last of a step the gradients are those of all."""
        return nullcontext()

    def clip(self, parameters: Sequence[Tensor], most: float) -> Tensor:
        """The norm of the gradient, which is made no larger than `most`."""
        return nn.utils.clip_grad_norm_(parameters, most)

    def settle(self, step: int) -> None:
        """Let the objective adapt to what it observed."""
        self.objective.settle(step)

    def whole(self, ema: Ema | None = None) -> AbstractContextManager[None]:
        """Within, `shown` is a whole system and its objective, of the averages if given.

        Every process enters; `shown` is none for those that have nothing to look at.
        """
        return ema.applied() if ema else nullcontext()


class _Pass(nn.Module):
    """The objective as a module that holds all that is trained: its terms may use parts of the system."""

    def __init__(self, objective: Objective, system: nn.Module) -> None:
        super().__init__()
        self.objective, self.system = objective, system

    def forward(self, canvas: Canvas, draws: Any) -> dict[str, tuple[Tensor, Tensor]]:
        # Plain tuples: torch looks into them for the tensors whose gradients it waits for.
        tallies: dict[str, Tally] = self.objective(canvas, draws)
        return {name: (tally.value, tally.mask) for name, tally in tallies.items()}


class Replicated(Alone):
    """All of the model on each process."""

    def __init__(self, objective: Objective, system: nn.Module, team: Team) -> None:
        super().__init__(objective, system, team)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of a newer name, which older torch lacks
            # What is observed is gathered, so buffers are equal already.
            self.model = DistributedDataParallel(_Pass(objective, system), broadcast_buffers=False)
        if not team.is_first:
            self.shown = None

    def __call__(self, canvas: Canvas, draws: Any) -> dict[str, Tally]:
        return {name: Tally(*pair) for name, pair in self.model(canvas, draws).items()}

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self.model.no_sync()


class Sharded(Alone):
    """A part of every weight on each process; the first one has a whole copy beside it, to look at."""

    def __init__(self, objective: Objective, system: nn.Module, team: Team, twin: Twin) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        super().__init__(objective, system, team)
        self.shown = twin() if team.is_first else None
        mesh = init_device_mesh(next(system.parameters()).device.type, (team.world,))
        model = _Pass(objective, system)
        for block in dict.fromkeys(_blocks(model)):  # objective and system share theirs
            fully_shard(block, mesh=mesh)
        self.model: Any = fully_shard(model, mesh=mesh)

    def __call__(self, canvas: Canvas, draws: Any) -> dict[str, Tally]:
        return {name: Tally(*pair) for name, pair in self.model(canvas, draws).items()}

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        self.model.set_requires_gradient_sync(last)
        yield

    def clip(self, parameters: Sequence[Tensor], most: float) -> Tensor:
        return _whole(super().clip(parameters, most))

    def settle(self, step: int) -> None:
        self.model.unshard()  # an objective may look at the embeddings
        super().settle(step)
        self.model.reshard()

    @contextmanager
    def whole(self, ema: Ema | None = None) -> Iterator[None]:
        averages = ema.averages if ema else {}
        self._copy(_tensors(self.system) | averages, to=0)
        self._copy(dict(self.objective.named_buffers()), to=1)
        yield

    def _copy(self, state: Mapping[str, Tensor], *, to: int) -> None:
        """Put tensors into the twin's system or objective, one at a time; all processes give their parts."""
        target = None if self.shown is None else self.shown[to]
        places = {} if target is None else _tensors(target)
        for name, tensor in state.items():
            value = _whole(tensor.detach())
            if name in places:
                places[name].detach().copy_(value)  # not by `data`: who keeps what they made is to notice


class Through(Plain):
    """A pass, operation by operation, through the model that an engine holds."""

    def __init__(self, autocast: Autocast, engine: Alone) -> None:
        super().__init__(autocast)
        self.engine = engine

    def forward(self, objective: Objective, canvas: Canvas, draws: Any) -> dict[str, Tally]:
        return self.engine(canvas, draws)


def engage(objective: Objective, system: nn.Module, team: Team, *, sharded: bool, twin: Twin) -> Alone:
    """The engine for this many processes."""
    if team.is_alone:
        return Alone(objective, system, team)
    return Sharded(objective, system, team, twin) if sharded else Replicated(objective, system, team)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, each under its first name only."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def _whole(tensor: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The repeated parts, such as a transformer's layers: the members of the outermost lists.

    A module that is `undivided` has none: it is whole for all of a step.
    """
    if getattr(module, "undivided", False):
        return
    for child in module.children():
        yield from child if isinstance(child, nn.ModuleList) else _blocks(child)
