"""How the numbers of weights are stored: as they are, in bfloat16, or in eight bits.

In eight bits, each row of a large matrix W is stored as round(W / s), with s = max |W| / 127 of that row. The
file then has the integers under the matrix's name and the scales (rows,) under that name and `.row_scale`.
`Int8Linear` rounds in the same way, so a linear layer that computes in int8 gets the stored integers back.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from noise2text.core.errors import Problem

__all__ = [
    "INT8_MAX",
    "ROW_SCALE",
    "WEIGHT_TYPES",
    "compress_weights",
    "expand_weights",
    "min_row_max",
    "row_scale",
]

INT8_MAX = 127
ROW_SCALE = ".row_scale"
MIN_ELEMENTS = 1 << 12
"""Smaller tensors (biases, norms) stay as they are: they take little room."""


WEIGHT_TYPES = ("float32", "bfloat16", "int8")
"""The types in which large tensors can be stored."""


def row_scale(rows: Tensor) -> Tensor:
    """The scale of each row (R, 1): its largest entry becomes ±127."""
    # The maximum norm is the same, but takes ten times as long.
    return rows.abs().amax(1, keepdim=True).clamp_(min=min_row_max(rows.dtype)) / INT8_MAX


def min_row_max(dtype: torch.dtype) -> float:
    """The least that a row's largest entry is taken to be, so that a row of zeros stays one."""
    return torch.finfo(dtype).tiny * INT8_MAX


def compress_weights(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """The tensors as they are stored in one of `WEIGHT_TYPES`.

    >>> weights = compress_weights({"w": torch.arange(8192.0).reshape(64, 128)}, "int8")
    >>> {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in weights.items()}
    {'w': (torch.int8, (64, 128)), 'w.row_scale': (torch.float32, (64,))}
    """
    if dtype not in WEIGHT_TYPES:
        raise Problem(f"Weights cannot be stored as {dtype}; choose one of {', '.join(WEIGHT_TYPES)}.")
    compressed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            compressed[name] = tensor
        elif tensor.numel() < MIN_ELEMENTS or dtype == "float32":
            compressed[name] = tensor.float()
        elif tensor.ndim == 2 and dtype == "int8":
            scale = row_scale(tensor.float())
            compressed[name] = (tensor.float() / scale).round().to(torch.int8)
            compressed[name + ROW_SCALE] = scale[:, 0]
        else:
            compressed[name] = tensor.to(torch.bfloat16)
    return compressed


def expand_weights(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with the numbers that eight bits stand for; all others stay as they are stored."""
    expanded: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        scale = stored.get(name + ROW_SCALE)
        if name.endswith(ROW_SCALE) and name.removesuffix(ROW_SCALE) in stored:
            continue
        if scale is None:
            expanded[name] = tensor
        elif tensor.dtype == torch.int8 and tensor.ndim == 2 and _are_scales(scale, rows=len(tensor)):
            expanded[name] = tensor.float() * scale[:, None]
        else:
            raise Problem(f"The scales of {name[:100]} do not fit its rows: the file is damaged.")
    return expanded


def _are_scales(scale: Tensor, *, rows: int) -> bool:
    """Whether this is a positive number for each row, with which the largest integer is still finite."""
    if scale.dtype != torch.float32 or scale.shape != (rows,):
        return False
    return bool(((scale > 0) & (scale < torch.finfo(scale.dtype).max / 2**7)).all())
