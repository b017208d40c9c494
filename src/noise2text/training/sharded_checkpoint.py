"""Tensors in a folder, written by any number of processes, read by any other (torch.distributed.checkpoint).

A process writes what it alone has (its shard of a weight) and its share of what all have. The files are
safetensors whose headers say where in the whole tensor a part belongs, so nothing is pickled.
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

from noise2text.training.process_group import Team

__all__ = ["Kind", "kinds", "read", "write"]


@dataclass(frozen=True)
class Kind:
    """The shape and the type of a whole tensor."""

    shape: torch.Size
    dtype: torch.dtype


def write(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    """Write the tensors; every process of the team names the same ones."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    with _told():
        save(dict(tensors), storage_writer=writer, no_dist=team.is_alone)


def kinds(folder: Path) -> dict[str, Kind]:
    """What is in the folder."""
    found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        name: Kind(kept.size, kept.properties.dtype)
        for name, kept in found.items()
        if isinstance(kept, TensorStorageMetadata)
    }


def read(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    """Fill the tensors, each process what it has of them."""
    with _told():
        load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=team.is_alone)


@contextmanager
def _told() -> Iterator[None]:
    """Within, what goes wrong is an OSError, and nobody is warned that one process is one process."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    except CheckpointException as error:
        causes = {str(cause) for cause, _ in error.failures.values()}
        raise OSError("; ".join(sorted(causes))) from error
