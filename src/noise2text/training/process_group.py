"""Several processes that train one model: who this one is, and what they tell each other.

A step is a function of the whole batch. Of its B rows, process r of n has those from ⌊rB/n⌋ to ⌊(r+1)B/n⌋;
the keys of noise count the rows of the whole. With S_r the sum of its losses and N_r what it counts,

    mean over r of  S_r / (mean over r of N_r)  =  Σ S_r / Σ N_r,

so the mean of the processes' losses, and of their gradients, is that of one process with the whole batch.
`torchrun` starts the processes and says in the environment which is which; without it there is only one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import torch
from torch import Tensor, distributed

from noise2text.core.errors import Problem

__all__ = ["PATIENCE", "Span", "Team"]

PATIENCE = timedelta(days=7)  # how long a process waits for the slowest one

_MET: list[object] = []
"""The groups of this process, until it ends. Else a reducer of torch's could be the last to hold one, freed
with an error's traceback: it waits for gloo's threads and keeps the interpreter, for which they may wait."""


@dataclass(frozen=True)
class Span:
    """Where the rows of a process lie in the whole batch: how many each process has, in order."""

    rank: int
    sizes: tuple[int, ...]

    @property
    def first(self) -> int:
        """The place of this process's first row."""
        return sum(self.sizes[: self.rank])

    @property
    def whole(self) -> int:
        """How many rows all processes have."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Team:
    """This process among those that work together; by default it is alone."""

    rank: int = 0
    world: int = 1
    local: int = 0  # the rank among the processes of this machine

    @classmethod
    def here(cls) -> Self:
        """This process, as torchrun's environment says."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        said = [os.environ.get(name, default) for name, default in zip(names, "010", strict=True)]
        numbers = list(map(int, said)) if all(map(str.isdecimal, said)) else [0, 0, 0]
        if numbers[0] >= numbers[1] or (numbers[1] != 1 and "RANK" not in os.environ):
            raise Problem(
                f"The environment has WORLD_SIZE={said[1]} and RANK={os.environ.get('RANK', '')}, which does "
                f"not say which of several processes this is: start them by torchrun, or unset both."
            )
        return cls(*numbers)

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there are no other processes."""
        return self.world == 1

    def device(self, name: str | None) -> str | None:
        """A GPU of its own where several processes share a machine."""
        if not self.is_alone and name in (None, "cuda") and torch.cuda.is_available():
            return f"cuda:{self.local}"
        return name

    @contextmanager
    def meeting(self, device: torch.device | None = None) -> Iterator[None]:
        """Within, the processes can talk: by NCCL about what is on a GPU, by gloo about all else."""
        if self.is_alone:
            yield
            return
        on_gpu = device is not None and device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=PATIENCE)
        _MET.append(distributed.group.WORLD)
        try:
            yield
        finally:
            distributed.destroy_process_group()

    def share(self, rows: int) -> slice:
        """Which of a batch's rows are this process's."""
        if rows < self.world:
            raise Problem(
                f"{self.world} processes cannot share a batch of {rows} rows: raise the setting tokens."
            )
        return slice(self.rank * rows // self.world, (self.rank + 1) * rows // self.world)

    def spans(self, rows: Iterable[int]) -> list[Span]:
        """Where this process's rows, so many of each micro-batch, lie in the whole."""
        own = list(rows)
        if self.is_alone:
            return [Span(0, (count,)) for count in own]
        counts = self._each(torch.tensor(own))
        return [Span(self.rank, tuple(sizes)) for sizes in torch.stack(counts, dim=1).tolist()]

    def means(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Numbers of one type, each averaged over the processes."""
        if self.is_alone:
            return dict(values)
        together = torch.stack(list(values.values()))
        distributed.all_reduce(together)
        return dict(zip(values, together / self.world, strict=True))

    def gather(self, tensors: Sequence[Tensor], span: Span) -> list[Tensor]:
        """Tensors of the rows of all processes, from each one's tensors of its own rows."""
        return list(tensors) if self.is_alone else [self._gathered(tensor, span) for tensor in tensors]

    def _gathered(self, own: Tensor, span: Span) -> Tensor:
        most = max(span.sizes)
        carried = own.to(torch.uint8) if own.dtype == torch.bool else own  # gloo carries no booleans
        padded = carried.new_zeros(most, *own.shape[1:])
        padded[: len(own)] = carried.detach()
        parts = zip(self._each(padded), span.sizes, strict=True)
        return torch.cat([part[:size] for part, size in parts]).to(own.dtype)

    def _each(self, own: Tensor) -> list[Tensor]:
        """The tensor of each process; all have one of the same shape."""
        everyones = [torch.empty_like(own) for _ in range(self.world)]
        distributed.all_gather(everyones, own)
        return everyones

    def any(self, fact: bool) -> bool:
        """Whether it is a fact for any process; all wait for each other."""
        if self.is_alone:
            return fact
        told = torch.tensor(int(fact))
        distributed.all_reduce(told, distributed.ReduceOp.MAX)
        return bool(told)

    def wait(self) -> None:
        """Come back when all processes are here."""
        self.any(False)
