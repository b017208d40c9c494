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
    "change",
    "describe",
    "option",
    "parse_assignments",
    "parse_options",
    "read_config",
    "require_choice",
    "require_heads",
    "require_least",
    "require_share",
]

S = TypeVar("S")


def option(default: Any, help: str) -> Any:
    """A field with its default and one line on what it is."""
    return dataclasses.field(default=default, metadata={"help": help})


def change(settings: S, changes: Mapping[str, Any], *, where: str) -> S:
    """The settings with some fields changed; `where` says in messages where the changes came from."""
    kinds = _kinds(type(settings))  # type: ignore[arg-type]
    converted = {}
    for name, value in changes.items():
        if name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1)
            known = f"it knows {', '.join(kinds)}." if kinds else "it has none at all."
            hint = f"did you mean {close[0]}?" if close else known
            raise Problem(f"{where}: there is no setting {name!r}; {hint}")
        converted[name] = _convert(value, kinds[name], f"{where}: the setting {name}")
    return dataclasses.replace(settings, **converted)  # type: ignore[type-var]


@functools.cache
def _kinds(of: type) -> dict[str, Any]:
    return typing.get_type_hints(of)


def require_choice(settings: Any, name: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is none of the allowed ones."""
    if getattr(settings, name) not in allowed:
        raise Problem(f"The setting {name} is one of {', '.join(allowed)}, not {getattr(settings, name)!r}.")


def require_least(settings: Any, least: float, *names: str) -> None:
    """Refuse values below the least."""
    for name in names:
        if not getattr(settings, name) >= least:  # not a number is not enough, either
            raise Problem(f"The setting {name} must be at least {least:g}, not {getattr(settings, name)}.")


def require_share(settings: Any, *names: str) -> None:
    """Refuse values that are not between 0 and 1."""
    for name in names:
        if not 0 <= getattr(settings, name) <= 1:
            raise Problem(f"The setting {name} must be between 0 and 1, not {getattr(settings, name)}.")


def require_heads(settings: Any) -> None:
    """Refuse a width that its heads cannot share."""
    require_least(settings, 1, "width", "heads")
    if settings.width % settings.heads or settings.width % 2:
        wrong = f"{settings.width} of {settings.heads}"
        raise Problem(f"The setting width must be even and a multiple of heads, not {wrong}.")


def parse_assignments(assignments: list[str] | None) -> dict[str, str]:
    """{"key": "value"} from ["key=value"]."""
    changes = {}
    for assignment in assignments or []:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise Problem(f"--set takes key=value, not {assignment!r}.")
        changes[name.strip()] = value.strip()
    return changes


def parse_options(arguments: list[str]) -> dict[str, str]:
    """{"key_of_two": "value"} from ["--key-of-two", "value"] or ["--key-of-two=value"]."""
    changes, rest = {}, iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            raise Problem(f"There is nothing to do with {argument!r}; settings are given as --name VALUE.")
        if not equals:
            value = next(rest, "")
            if not value or value.startswith("--"):
                raise Problem(f"The option {name} needs a value.")
        changes[name.removeprefix("--").replace("-", "_")] = value
    return changes


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


def describe(settings: Any) -> list[tuple[str, Any, str]]:
    """Name, value and one line for every field."""
    return [(f.name, getattr(settings, f.name), f.metadata["help"]) for f in dataclasses.fields(settings)]


def _convert(value: Any, kind: Any, what: str) -> Any:
    """The value as the field's type; strings come from flags, other values from files."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        (kind,) = (k for k in typing.get_args(kind) if k is not type(None))
    if typing.get_origin(kind) is tuple:
        parts = value.strip("()[] ").split(",") if isinstance(value, str) else value
        kinds = typing.get_args(kind)
        if not isinstance(parts, list | tuple) or len(parts) != len(kinds):
            raise Problem(f"{what} takes {len(kinds)} values with a comma between them, not {value!r}.")
        return tuple(_convert(part, k, what) for part, k in zip(parts, kinds, strict=True))
    reader = _READERS[kind]
    try:
        return reader(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Problem(f"{what} takes {_NAMES[kind]}, not {value!r}.") from error


def _bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError(value)
    return words[str(value).lower()]


def _int(value: Any) -> int:
    text = str(value).replace("_", "")
    plain = re.fullmatch(r"\s*[+-]?\d+\s*", text)
    number = int(text) if plain else float(text)  # 1e4 is a float, which would round what is above 2⁵³
    if isinstance(value, bool) or number != int(number) or abs(number) >= 2**63:  # what a tensor can hold
        raise ValueError(value)
    return int(number)


def _float(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(value)
    return number


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


_READERS: dict[Any, Any] = {bool: _bool, int: _int, float: _float, str: _str}
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
