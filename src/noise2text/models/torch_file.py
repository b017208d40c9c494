"""Files of `torch.save` from other people's code, read without running code of theirs.

`torch.load` with `weights_only` builds tensors and plain containers, and refuses every class that is not
listed. A checkpoint also has things that a model does not need, such as the state of a progress meter.
`NotRead` takes the place of their classes: it keeps nothing and does nothing.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem, abbreviate

__all__ = ["NotRead", "read_torch_file", "require_weights"]


class NotRead:
    """What a file has in a place that nobody reads."""

    def __init__(self, *arguments: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


def read_torch_file(
    file: Path, *, plain_classes: Iterable[type] = (), not_read: Iterable[str] = ()
) -> object:
    """What a file of `torch.save` holds.

    Args:
        file: the file.
        plain_classes: classes that may occur, and that only hold values.
        not_read: full names of classes and functions that may occur, and become `NotRead`.
    """
    allowed: list[Any] = [*plain_classes, *((NotRead, name) for name in not_read)]
    try:
        with torch.serialization.safe_globals(allowed):
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused is None:
            raise Problem(f"{file} is damaged: copy it again.") from error
        raise Problem(
            f"{file} holds a {abbreviate(refused[1])}, which is not read, since it could run code: name a "
            f"checkpoint that the released code has written."
        ) from error
    except Exception as error:  # a damaged file can make the library raise anything
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Problem(
            f"{file} is missing or not a file of plain weights ({reason}): copy it again."
        ) from error


def require_weights(value: object, file: Path, *, named: str) -> dict[str, Tensor]:
    """The value, if it is a mapping of names to tensors; `named` says what the user should name instead."""
    if not isinstance(value, Mapping) or not all(isinstance(each, Tensor) for each in value.values()):
        raise Problem(f"{file} does not hold weights by name; name {named}.")
    for name, tensor in value.items():
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():  # numbers that repeat
            raise Problem(f"{file} has fewer numbers than its weight {abbreviate(str(name))}: copy it again.")
    return {str(name).removeprefix("module."): tensor for name, tensor in value.items()}
