"""A limit on what is allocated while a model from a stranger is built.

A network is built from config.json before its weights are read. Ten lines that ask for a billion layers, or
for a table of 10¹⁶ numbers, must not take the machine's memory: within `AllocationLimit` every tensor that is
created is counted before it is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from noise2text.core.errors import Problem

__all__ = ["TABLE_ELEMENTS", "AllocationLimit"]

TABLE_ELEMENTS = 2**24
"""Values that a model may compute for itself, such as tables of positions and of noise levels."""


def _count_size(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """The values of torch.empty(2, 3), torch.empty((2, 3)) or torch.empty(size=(2, 3))."""
    size = kwargs.get("size", args)
    if size and isinstance(size[0], list | tuple):
        size = size[0]
    return math.prod(each for each in size if isinstance(each, int))


def _count_range(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """At least the values of torch.arange(10**9) or torch.linspace(0, 1, 10**9)."""
    return int(
        max([abs(each) for each in (*args, *kwargs.values()) if isinstance(each, int | float)], default=0)
    )


def _count_square(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    return _count_range(args, kwargs) ** 2


_COUNTERS = {
    **dict.fromkeys((torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full), _count_size),
    **dict.fromkeys((torch.arange, torch.linspace), _count_range),
    torch.eye: _count_square,
}
"""How many values a function of torch would allocate, from its arguments."""


class AllocationLimit(TorchFunctionMode):
    """Context manager: a Problem before more is allocated than the weights of a model explain.

    Args:
        elements: the number of values in the weights.
        tensors: the number of tensors in the weights.
        what: the subject of the message, such as the path of config.json.
    """

    def __init__(self, elements: int, tensors: int, what: str) -> None:
        super().__init__()
        self.limit, self.max_tensors = 2 * elements + TABLE_ELEMENTS, 4 * tensors + 1_000
        self.what, self.num_elements, self.num_tensors = what, 0, 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _COUNTERS:
            self.num_tensors += 1
            self.num_elements += _COUNTERS[func](args, kwargs)
            if self.num_elements > self.limit or self.num_tensors > self.max_tensors:
                raise Problem(
                    f"{self.what} describes a far larger network than its weights: more than "
                    f"{min(self.num_elements, self.limit):,} values; were they written by the same run?"
                )
        return func(*args, **kwargs)
