"""Checks of what a caller in Python gives: one sentence says what it was, and what to give instead."""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem, abbreviate

__all__ = [
    "parse_flag",
    "parse_indices",
    "parse_number",
    "parse_path",
    "parse_whole_number",
    "require_function",
    "require_instance",
    "require_new_folder_name",
    "require_settings",
    "require_texts",
]

MAX_INDEX = 2**63
"""Indices key noise as 64-bit numbers."""


def require_texts(texts: Any, *, where: str) -> None:
    """Raise a Problem unless this is a list of texts, or another sequence of them.

    >>> from noise2text.core.arguments import require_texts
    >>> require_texts(["one", "two"], where="generate")
    >>> require_texts(["one", 2], where="generate")
    Traceback (most recent call last):
    noise2text.core.errors.Problem: generate takes a list of texts, but its item 2 is 2: give strings.
    """
    if isinstance(texts, str):
        raise Problem(f"{where} takes a list of texts: put the one text into a list.")
    try:
        len(texts)
    except TypeError:  # also of an array without dimensions
        raise Problem(f"{where} takes a list of texts, not {_describe(texts)}.") from None
    if isinstance(texts, bytes | Mapping | AbstractSet):
        raise Problem(f"{where} takes a list of texts, not {_describe(texts)}.")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise Problem(
                f"{where} takes a list of texts, but its item {number:,} is {_describe(text)}: give strings."
            )


def parse_whole_number(value: Any, name: str, *, where: str) -> int:
    """The whole number, of Python or of numpy; a Problem for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        raise Problem(
            f"{where} takes a whole number as {name}, not {_describe(value)}: give {name}=3, for example."
        ) from None


def parse_number(value: Any, name: str, *, where: str) -> float:
    """The number, of Python or of numpy; a Problem for anything else."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return value  # type: ignore[return-value]  # an int stays one
    raise Problem(f"{where} takes a number as {name}, not {_describe(value)}: give {name}=1.5, for example.")


def parse_flag(value: Any, name: str, *, where: str) -> bool:
    """True or False, of Python or of numpy, or 1 or 0; a Problem for anything else."""
    if (isinstance(value, numbers.Real) and value in (0, 1)) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise Problem(f"{where} takes True or False as {name}, not {_describe(value)}.")


def parse_indices(values: Any, *, where: str) -> list[int]:
    """The whole numbers of a sequence, for noise; a Problem for anything else."""
    try:
        if isinstance(values, str | bytes | Mapping | AbstractSet):
            raise TypeError
        found = [operator.index(value) for value in values]
    except TypeError:
        raise Problem(
            f"{where} takes a list of whole numbers as indices, one per text, not {abbreviate(values)}."
        ) from None
    if not all(-MAX_INDEX <= each < MAX_INDEX for each in found):
        raise Problem(f"{where} takes indices below 2**63, not {abbreviate(values)}.")
    return found


def require_function(value: Any, name: str, *, where: str) -> None:
    """Raise a Problem for what cannot be called; None is no function and no mistake."""
    if value is not None and not callable(value):
        raise Problem(f"{where} takes a function as {name}, not {_describe(value)}.")


def require_instance(value: Any, kind: type, *, where: str, example: str) -> None:
    """Raise a Problem for a value of another class; the example says how to make one."""
    if not isinstance(value, kind):
        raise Problem(f"{where} takes a {kind.__name__}, not {_describe(value)}: give {example}.")


def require_settings(settings: Any, *, where: str) -> None:
    """Raise a Problem unless these are settings by name."""
    if not isinstance(settings, Mapping):
        raise Problem(f'{where} takes settings by name, such as {{"lr": 1e-3}}, not {_describe(settings)}.')


def parse_path(path: Any, *, where: str, kind: str = "folder") -> Path:
    """The path of a folder, or of a file; a Problem for what is neither text nor a path."""
    if isinstance(path, os.PathLike) or (isinstance(path, str) and path):
        with suppress(TypeError):  # a path of bytes
            return Path(path)
    raise Problem(f"{where} takes the path of a {kind}, not {_describe(path)}.")


def require_new_folder_name(folder: Path) -> None:
    """Raise a Problem if something else than a folder has this name or that of one of its parents."""
    shown = abbreviate(str(folder))
    if "\0" in str(folder):
        raise Problem(f"{shown} cannot be a folder (it has a null character): choose another name.")
    for each in (folder, *folder.parents):
        try:
            exists, is_folder = each.exists(), each.is_dir()
        except (OSError, RuntimeError) as error:  # a name that is too long, a circle of links
            raise Problem(f"{shown} cannot be a folder ({error}): choose another name.") from error
        if exists:
            if not is_folder:
                raise Problem(f"{each} is a file, so {folder} cannot be a folder: choose another name.")
            return


def _describe(value: Any) -> str:
    """A short value itself; of others the type, since their addresses say nothing."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return abbreviate(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a value of type {type(value).__name__}"
