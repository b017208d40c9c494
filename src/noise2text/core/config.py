"""Settings: frozen dataclasses whose every field says what it is, changed by name from files and flags."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from noise2text.core.errors import Problem

__all__ = [
    "apply_overrides",
    "describe",
    "option",
    "parse_assignments",
    "parse_options",
    "read_config",
    "require_at_least",
    "require_choice",
    "require_divisible_heads",
    "require_fraction",
]

S = TypeVar("S")


def option(default: Any, help: str) -> Any:
    """A field with its default and one line on what it is."""
    return dataclasses.field(default=default, metadata={"help": help})


def apply_overrides(config: S, overrides: Mapping[str, Any], *, origin: str) -> S:
    """The settings with some fields changed; `origin` says in messages where the changes came from."""
    field_types = _field_types(type(config))  # type: ignore[arg-type]
    converted = {}
    for name, value in overrides.items():
        if name not in field_types:
            close = difflib.get_close_matches(name, field_types, n=1)
            known = f"it knows {', '.join(field_types)}." if field_types else "it has none at all."
            hint = f"did you mean {close[0]}?" if close else known
            raise Problem(f"{origin}: there is no setting {name!r}; {hint}")
        converted[name] = _convert(value, field_types[name], f"{origin}: the setting {name}")
    return dataclasses.replace(config, **converted)  # type: ignore[type-var]


@functools.cache
def _field_types(config_class: type) -> dict[str, Any]:
    return typing.get_type_hints(config_class)


def require_choice(config: Any, name: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is none of the allowed ones."""
    if getattr(config, name) not in allowed:
        raise Problem(f"The setting {name} is one of {', '.join(allowed)}, not {getattr(config, name)!r}.")


def require_at_least(config: Any, minimum: float, *names: str) -> None:
    """Refuse values below the least."""
    for name in names:
        if not getattr(config, name) >= minimum:  # not a number is not enough, either
            raise Problem(f"The setting {name} must be at least {minimum:g}, not {getattr(config, name)}.")


def require_fraction(config: Any, *names: str) -> None:
    """Refuse values that are not between 0 and 1."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise Problem(f"The setting {name} must be between 0 and 1, not {getattr(config, name)}.")


def require_divisible_heads(config: Any) -> None:
    """Refuse a width that its heads cannot share."""
    require_at_least(config, 1, "model_dim", "heads")
    if config.model_dim % config.heads or config.model_dim % 2:
        wrong = f"{config.model_dim} of {config.heads}"
        raise Problem(f"The setting model_dim must be even and a multiple of heads, not {wrong}.")


def parse_assignments(assignments: list[str] | None) -> dict[str, str]:
    """{"key": "value"} from ["key=value"]."""
    overrides = {}
    for assignment in assignments or []:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise Problem(f"--set takes key=value, not {assignment!r}.")
        overrides[name.strip()] = value.strip()
    return overrides


def parse_options(arguments: list[str]) -> dict[str, str]:
    """{"key_of_two": "value"} from ["--key-of-two", "value"] or ["--key-of-two=value"]."""
    overrides, rest = {}, iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            raise Problem(f"There is nothing to do with {argument!r}; settings are given as --name VALUE.")
        if not equals:
            value = next(rest, "")
            if not value or value.startswith("--"):
                raise Problem(f"The option {name} needs a value.")
        overrides[name.removeprefix("--").replace("-", "_")] = value
    return overrides


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Problem(f"The configuration {path} is not YAML: {' '.join(str(error).split())}.") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise Problem(f"The configuration {path} must hold `setting: value` lines.")
    return loaded


def describe(config: Any) -> list[tuple[str, Any, str]]:
    """Name, value and one line for every field."""
    return [(f.name, getattr(config, f.name), f.metadata["help"]) for f in dataclasses.fields(config)]


def _convert(value: Any, field_type: Any, what: str) -> Any:
    """The value as the field's type; strings come from flags, other values from files."""
    if typing.get_origin(field_type) in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        (field_type,) = (k for k in typing.get_args(field_type) if k is not type(None))
    if typing.get_origin(field_type) is tuple:
        parts = value.strip("()[] ").split(",") if isinstance(value, str) else value
        field_types = typing.get_args(field_type)
        if not isinstance(parts, list | tuple) or len(parts) != len(field_types):
            raise Problem(f"{what} takes {len(field_types)} values with a comma between them, not {value!r}.")
        return tuple(_convert(part, k, what) for part, k in zip(parts, field_types, strict=True))
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
    number = int(text) if plain else float(text)  # 1e4 is a float, which would round what is above 2⁵³
    if isinstance(value, bool) or number != int(number) or abs(number) >= 2**63:  # what a tensor can hold
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
