"""Values as the types of configuration fields: strings from flags, YAML and JSON values from files."""

from __future__ import annotations

import math
import re
import types
import typing
from typing import Any

from noise2text.core.errors import Problem

__all__ = ["convert_value"]


def convert_value(value: Any, field_type: Any, what: str) -> Any:
    """The value as the field's type; `what` names the field in error messages."""
    if typing.get_origin(field_type) in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        (field_type,) = (k for k in typing.get_args(field_type) if k is not type(None))
    if typing.get_origin(field_type) is tuple:
        parts = value.strip("()[] ").split(",") if isinstance(value, str) else value
        field_types = typing.get_args(field_type)
        if not isinstance(parts, list | tuple) or len(parts) != len(field_types):
            raise Problem(f"{what} takes {len(field_types)} values, separated by commas, not {value!r}.")
        return tuple(convert_value(part, k, what) for part, k in zip(parts, field_types, strict=True))
    parser = _PARSERS[field_type]
    try:
        return parser(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Problem(f"{what} takes {_TYPE_NAMES[field_type]}, not {value!r}.") from error


def _parse_bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError(value)
    return words[str(value).lower()]


def _parse_int(value: Any) -> int:
    text = str(value).replace("_", "")
    plain = re.fullmatch(r"\s*[+-]?\d+\s*", text)
    number = int(text) if plain else float(text)  # float would round integers above 2⁵³
    if isinstance(value, bool) or number != int(number) or abs(number) >= 2**63:  # beyond int64
        raise ValueError(value)
    return int(number)


def _parse_float(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(value)
    return number


def _parse_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


_PARSERS: dict[Any, Any] = {bool: _parse_bool, int: _parse_int, float: _parse_float, str: _parse_str}
_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
