"""Values as the types of configuration fields: strings from flags, YAML and JSON values from files."""

from __future__ import annotations

import math
import numbers
import re
import types
import typing
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from noise2text.core.errors import Problem, abbreviate

__all__ = ["MAX_INTEGER", "Limits", "convert_value", "require_type"]

MAX_INTEGER = 2**62
"""Whole numbers are below this, so that twice as much is still an int64."""


@dataclass(frozen=True)
class Limits:
    """The values that a setting takes: a range of numbers, or some words. None is always allowed.

    In a tuple each value must be one of them.

    A subset of the fields is set. NaN is in no range.
    """

    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    choices: Collection[str] = ()

    def __bool__(self) -> bool:
        return self != Limits()

    def require(self, value: Any, what: str) -> None:
        """Raise a Problem for a value that is not among them; `what` names the setting."""
        if value is None:
            return
        if isinstance(value, tuple):
            for each in value:
                self.require(each, what)
            return
        if self.choices:
            if value not in self.choices:
                raise Problem(f"{what} is one of {', '.join(self.choices)}, not {abbreviate(value)}.")
            return
        in_range = (
            (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )
        if not in_range:
            raise Problem(f"{what} must be {self.describe_range()}, not {value}.")

    def describe_range(self) -> str:
        """The range in words: "at least 1", "between 0 and 1", "above 0 and below 1"."""
        if self.minimum is not None and self.maximum is not None:
            return f"between {self.minimum:g} and {self.maximum:g}"
        ends = {"at least": self.minimum, "above": self.above, "at most": self.maximum, "below": self.below}
        return " and ".join(f"{words} {end:g}" for words, end in ends.items() if end is not None)


def convert_value(value: Any, field_type: Any, what: str) -> Any:
    """The value as the field's type; `what` names the field in error messages."""
    if typing.get_origin(field_type) in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        (field_type,) = (k for k in typing.get_args(field_type) if k is not type(None))
    if typing.get_origin(field_type) is tuple:
        parts = value.strip("()[] ").split(",", 100) if isinstance(value, str) else value
        field_types = typing.get_args(field_type)
        if not isinstance(parts, list | tuple) or len(parts) != len(field_types):
            raise Problem(
                f"{what} takes {len(field_types)} values, separated by commas, not {abbreviate(value)}."
            )
        return tuple(convert_value(part, k, what) for part, k in zip(parts, field_types, strict=True))
    parser = _PARSERS[field_type]
    try:
        return parser(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Problem(f"{what} takes {_TYPE_NAMES[field_type]}, not {abbreviate(value)}.") from error


def require_type(value: Any, field_type: Any, what: str) -> None:
    """Raise a Problem for a value that has not the field's type already; sections are left out."""
    if type(value) is field_type:
        return
    if typing.get_origin(field_type) in (types.UnionType, typing.Union):
        others = [k for k in typing.get_args(field_type) if k is not type(None)]
        if value is None or len(others) != 1:
            return
        (field_type,) = others
    if typing.get_origin(field_type) is tuple and ... not in typing.get_args(field_type):
        field_types = typing.get_args(field_type)
        parts = value if isinstance(value, list | tuple) else ()
        if len(parts) != len(field_types):
            raise Problem(f"{what} takes {len(field_types)} values, not {abbreviate(value)}.")
        for part, each in zip(parts, field_types, strict=True):
            require_type(part, each, what)
    elif field_type in _TYPE_NAMES:
        accepted = (int, float) if field_type is float else field_type
        if not isinstance(value, accepted) or (isinstance(value, bool) and field_type is not bool):
            raise Problem(f"{what} takes {_TYPE_NAMES[field_type]}, not {abbreviate(value)}.")
        convert_value(value, field_type, what)


def _parse_bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    word = str(value).lower() if isinstance(value, str | numbers.Real) else ""
    if word not in words:
        raise ValueError("neither true nor false")
    return words[word]


def _parse_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | numbers.Real):
        raise TypeError("not a number")
    text = str(value).replace("_", "")
    plain = re.fullmatch(r"\s*[+-]?\d+\s*", text)
    number = int(text) if plain else float(text)  # float would round integers above 2⁵³
    if number != int(number) or abs(number) >= MAX_INTEGER:
        raise ValueError("no whole number, or too large")
    return int(number)


def _parse_float(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError("no finite number")
    return number


def _parse_str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


_PARSERS: dict[Any, Any] = {bool: _parse_bool, int: _parse_int, float: _parse_float, str: _parse_str}
_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
