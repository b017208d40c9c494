"""The processes that train one model together: the rank of this one, and their collective operations.

A step is a function of the whole batch. Of its B rows, process r of n has those from ⌊rB/n⌋ to ⌊(r+1)B/n⌋;
the keys of the noise number the rows of the whole batch. With S_r the sum of the losses of process r and N_r
their number,

    mean over r of  S_r / (mean over r of N_r)  =  Σ S_r / Σ N_r,

so the mean of the processes' losses, and of their gradients, is that of one process with the whole batch.
`torchrun` starts the processes and sets their ranks in the environment; without it there is one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import torch
from torch import Tensor, distributed

from noise2text.core.errors import Problem

__all__ = ["TIMEOUT", "ProcessGroup"]

TIMEOUT = timedelta(days=7)  # how long a process waits for the slowest one

_OPEN_GROUPS: list[object] = []
"""References to the groups of this process until it ends. Without them, freeing the traceback of an error
could free a group inside torch, which would wait for gloo's threads while these wait for the interpreter."""


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process and the number of processes; by default a single process."""

    rank: int = 0  # the process of rank 0 writes the files
    world_size: int = 1
    local_rank: int = 0  # the rank on this machine

    @classmethod
    def from_environment(cls) -> Self:
        """The group that torchrun's environment variables describe."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        values = [os.environ.get(name, default) for name, default in zip(names, "010", strict=True)]
        ranks = list(map(int, values)) if all(map(str.isdecimal, values)) else [0, 0, 0]
        if ranks[0] >= ranks[1] or (ranks[1] != 1 and "RANK" not in os.environ):
            raise Problem(
                f"The environment has WORLD_SIZE={values[1]} and RANK={os.environ.get('RANK', '')}, which "
                f"does not say which process this is: start the processes with torchrun, or unset both."
            )
        return cls(*ranks)

    def device(self, name: str | None) -> str | None:
        """The name of this process's device: a GPU of its own if several processes share a machine."""
        if self.world_size == 1 or name not in (None, "cuda") or not torch.cuda.is_available():
            return name
        gpus = torch.cuda.device_count()
        if self.local_rank >= gpus:
            raise Problem(
                f"There are more processes here than GPUs ({gpus}): start one process per GPU; to distill "
                f"with several processes on one GPU, add --device cuda:0."
            )
        return f"cuda:{self.local_rank}"

    @contextmanager
    def connect(self, device: torch.device | None = None) -> Iterator[None]:
        """Context manager: the processes can communicate, with NCCL for tensors on a GPU, else with gloo."""
        if self.world_size == 1:
            yield
            return
        on_gpu = device is not None and device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=self._open_store(),
            rank=self.rank,
            world_size=self.world_size,
            timeout=TIMEOUT,
        )
        _OPEN_GROUPS.append(distributed.group.WORLD)
        try:
            yield
        finally:
            distributed.destroy_process_group()

    def _open_store(self) -> distributed.Store:
        """The key-value store in which the processes find each other.

        When torchrun restarts them, the store may still hold the addresses of the processes before, where
        nobody listens any more. So every attempt has keys of its own.
        """
        store, *_ = next(distributed.rendezvous("env://", timeout=TIMEOUT))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return distributed.PrefixStore(f"attempt {attempt} of {self.world_size}", store)

    def slice_rows(self, rows: int) -> slice:
        """The rows of a batch that belong to this process."""
        if rows < self.world_size:
            raise Problem(
                f"{self.world_size} processes cannot share a batch of {rows} rows: "
                f"raise the setting max_tokens."
            )
        return slice(self.rank * rows // self.world_size, (self.rank + 1) * rows // self.world_size)

    def gather_sizes(self, own: Sequence[int]) -> list[list[int]]:
        """The number of rows of every process in each micro-batch, from those of this process."""
        sizes: list[list[int]] = torch.stack(self._all_gather(torch.tensor(own)), dim=1).tolist()
        return sizes

    def all_reduce_mean(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each value averaged over the processes; all have one dtype."""
        if self.world_size == 1:
            return dict(values)
        stacked = torch.stack(list(values.values()))
        distributed.all_reduce(stacked)
        return dict(zip(values, stacked / self.world_size, strict=True))

    def gather(self, tensors: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """The rows of all processes, concatenated, for each tensor of this process's rows.

        `sizes` are the numbers of rows of every process.
        """
        if self.world_size == 1:
            return list(tensors)
        return [self._gather_rows(tensor, sizes) for tensor in tensors]

    def _gather_rows(self, own: Tensor, sizes: Sequence[int]) -> Tensor:
        max_rows = max(sizes)
        sendable = own.to(torch.uint8) if own.dtype == torch.bool else own  # gloo cannot send booleans
        padded = sendable.new_zeros(max_rows, *own.shape[1:])
        padded[: len(own)] = sendable.detach()
        parts = zip(self._all_gather(padded), sizes, strict=True)
        return torch.cat([part[:size] for part, size in parts]).to(own.dtype)

    def _all_gather(self, own: Tensor) -> list[Tensor]:
        """The tensors of all processes, which have the same shape."""
        gathered = [torch.empty_like(own) for _ in range(self.world_size)]
        distributed.all_gather(gathered, own)
        return gathered

    def any_process(self, is_true: bool) -> bool:
        """Whether this is true on any process; all processes wait for each other."""
        if self.world_size == 1:
            return is_true
        flag = torch.tensor(int(is_true))
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return bool(flag)

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.any_process(False)
