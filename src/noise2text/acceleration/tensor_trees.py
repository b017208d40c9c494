"""Nested tuples and dataclasses of tensors: their shapes, clones, and copies in place."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

__all__ = ["clone_tensors", "copy_tensors", "shapes_of"]


def shapes_of(parts: Any) -> Sequence[Hashable]:
    """The shape and dtype of every tensor, in order."""
    return [(tensor.shape, tensor.dtype) for tensor in _tensors(parts)]


def clone_tensors(parts: Any) -> Any:
    """The same tuple or dataclass with tensors in memory of their own."""
    own = [part.clone() if isinstance(part, Tensor) else clone_tensors(part) for part in _fields(parts)]
    return tuple(own) if isinstance(parts, tuple) else type(parts)(*own)


def copy_tensors(parts: Any, others: Any) -> None:
    """Copy the tensors of another tuple or dataclass over those of this one."""
    torch._foreach_copy_(list(_tensors(parts)), list(_tensors(others)))


def _tensors(parts: Any) -> Iterator[Tensor]:
    """The tensors of a tuple or a dataclass, and of those within it."""
    for part in _fields(parts):
        yield from [part] if isinstance(part, Tensor) else _tensors(part)


def _fields(whole: Any) -> Sequence[Any]:
    """The parts of a tuple or a dataclass, in order."""
    return whole if isinstance(whole, tuple) else [getattr(whole, each.name) for each in fields(whole)]
