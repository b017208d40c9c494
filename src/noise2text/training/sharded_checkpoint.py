"""Tensors in a folder that any number of processes write and any other number read.

With torch.distributed.checkpoint, a process writes its shards and its share of the tensors that all processes
have. The files are safetensors whose headers give the place of a shard in its tensor; nothing is pickled.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint import (
    CheckpointException,
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
    load,
    save,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from noise2text.training.process_group import ProcessGroup

__all__ = ["TensorSpec", "read_tensors", "tensor_specs", "write_tensors"]


@dataclass(frozen=True)
class TensorSpec:
    """The shape and the dtype of a whole tensor."""

    shape: torch.Size
    dtype: torch.dtype


def write_tensors(folder: Path, tensors: Mapping[str, Tensor], group: ProcessGroup) -> None:
    """Write the tensors; every process of the group must name the same ones."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with _raise_os_error():
        save(dict(tensors), storage_writer=writer, no_dist=group.world_size == 1)


def tensor_specs(folder: Path) -> dict[str, TensorSpec]:
    """The shape and dtype of every tensor in the folder."""
    found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        name: TensorSpec(metadata.size, metadata.properties.dtype)
        for name, metadata in found.items()
        if isinstance(metadata, TensorStorageMetadata)
    }


def read_tensors(folder: Path, tensors: Mapping[str, Tensor], group: ProcessGroup) -> None:
    """Fill the tensors from the folder; each process reads its shards."""
    with _raise_os_error():
        load(
            dict(tensors),
            storage_reader=HuggingFaceStorageReader(str(folder)),
            no_dist=group.world_size == 1,
        )


@contextmanager
def _raise_os_error() -> Iterator[None]:
    """Context manager: failures are OSErrors, and torch does not warn about a single process."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    except CheckpointException as error:
        causes = {str(cause) for cause, _ in error.failures.values()}
        raise OSError("; ".join(sorted(causes))) from error
