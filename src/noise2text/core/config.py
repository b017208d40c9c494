"""Configuration: frozen dataclasses, composed of sections, whose fields carry their own help.

    @dataclass(frozen=True)
    class OptimConfig(Config):
        lr: float = option(5e-4, "peak learning rate", minimum=0)

    @dataclass(frozen=True)
    class RecipeConfig(Config):
        seed: int = option(0, "seed of the weights, the data order and the noise")
        optim: OptimConfig = section(OptimConfig(), "the optimizer")

    config = RecipeConfig().replace({"optim.lr": 1e-3}, seed=1)

A setting is a field that holds a value. Its full name is dotted (`optim.lr`); its short name (`lr`) works
wherever no other setting has it. A field says which values it takes; `__post_init__` of a section refuses
values that do not fit together. `dataclasses.asdict` turns a config into a mapping that `replace` takes.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar, cast

from noise2text.core.arguments import require_settings
from noise2text.core.errors import Problem, abbreviate
from noise2text.core.field_values import Limits, convert_value, require_type
from noise2text.core.setting_words import suggest_setting

__all__ = [
    "Config",
    "apply_overrides",
    "describe",
    "find_help",
    "get_setting",
    "has_setting",
    "option",
    "require_values",
    "section",
]

S = TypeVar("S")


def option(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: Collection[str] = (),
) -> Any:
    """A field of a `Config`: its default, one line of help, and the values that it takes.

    A class that extends a config and only changes a default writes the value alone; help and limits stay.

    Args:
        default: the value of the setting unless it is changed.
        help: what the setting does; `noise2text config` prints it beside the value.
        minimum: the smallest value.
        above: what the value must be greater than.
        maximum: the largest value.
        below: what the value must be smaller than.
        choices: the only values.

    Returns:
        A dataclass field.

    >>> from dataclasses import dataclass
    >>> from noise2text import Config, option
    >>> @dataclass(frozen=True)
    ... class BeamConfig(Config):
    ...     beam: int = option(5, "hypotheses of the beam search", minimum=1)
    >>> @dataclass(frozen=True)
    ... class GreedyConfig(BeamConfig):
    ...     beam: int = 1
    >>> GreedyConfig()
    GreedyConfig(beam=1)
    >>> GreedyConfig(beam=0)
    Traceback (most recent call last):
    noise2text.core.errors.Problem: The setting beam must be at least 1, not 0.
    """
    limits = Limits(minimum, above, maximum, below, choices)
    return dataclasses.field(default=default, metadata={"help": help, "limits": limits})


def section(default: S, help: str = "") -> S:
    """A field of a `Config` that holds a section, which is again a `Config`.

    Args:
        default: the section with the defaults of this config.
        help: what the section is about; `noise2text config` prints it above the section.

    Returns:
        A dataclass field.

    >>> from dataclasses import dataclass
    >>> from noise2text import Config, OptimConfig, section
    >>> @dataclass(frozen=True)
    ... class MyConfig(Config):
    ...     optim: OptimConfig = section(OptimConfig(lr=1e-3), "the optimizer")
    >>> MyConfig().optim.lr
    0.001
    """
    field: Any = dataclasses.field(default=default, metadata={"help": help})
    return field


@dataclass(frozen=True)
class Config:
    """The base class of configs and their sections: frozen dataclasses whose fields are settings.

    A setting is an `option`, a group of settings is a `section`. A config never changes; `replace` returns a
    new one, and validates it. `noise2text config RECIPE` prints all settings of a recipe with their help.

    >>> from dataclasses import dataclass
    >>> from noise2text import Config, OptimConfig, option, section
    >>> @dataclass(frozen=True)
    ... class MyConfig(Config):
    ...     layers: int = option(6, "layers of the network")
    ...     optim: OptimConfig = section(OptimConfig(lr=1e-3), "the optimizer")
    >>> MyConfig().replace({"optim.steps": 3000}, layers=2).optim.steps
    3000
    """

    def __new__(cls, *values: Any, **settings: Any) -> Self:
        """A config whose given values are what their fields take; a Problem for others."""
        names = (field.name for field in dataclasses.fields(cls))
        given = (*zip(names, values, strict=False), *settings.items())
        with suppress(NameError):  # of types that a plugin imports for type checking only
            types = _field_types(cast(type, cls))
            for name, value in given:
                require_type(value, types.get(name), f"{cls.__name__}: the setting {name}")
        limits = _field_limits(cast(type, cls))
        for name, value in given:
            if name in limits:
                limits[name].require(value, f"The setting {name}")
        return super().__new__(cls)

    def replace(self, changes: Mapping[str, Any] | None = None, /, **settings: Any) -> Self:
        """The config with some settings changed: `config.replace({"optim.steps": 3000}, lr=1e-3)`.

        Args:
            changes: values by full name (`optim.steps`), or by short name where only one setting has it.
            settings: values by short name.
        """
        require_settings({} if changes is None else changes, where=f"{type(self).__name__}.replace")
        return apply_overrides(self, {**(changes or {}), **settings}, origin=type(self).__name__)

    def __post_init__(self) -> None:
        """Raise a `Problem` for settings that do not fit together, in a config that has such."""

    def implied_changes(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Further settings that follow from these changes; none, unless a config says so."""
        return {}


def apply_overrides(
    config: S, overrides: Mapping[str, Any], *, origin: str, root: Any = None, prefix: str = ""
) -> S:
    """The config with some settings changed; `origin` says in messages where the changes came from.

    A key is a full name (`optim.lr`), a short name that only one setting has (`lr`), or a section (`optim`).
    The value of a section is a mapping of the names in it, or a config that takes its place. Where two keys
    name the same setting, the later one wins.

    Sections are changed by the same function; messages about them need the whole config (`root`), and the
    dotted name of the section with a dot at its end (`prefix`).
    """
    changes: dict[str, Any] = {}
    in_sections: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        if not isinstance(name, str):
            raise Problem(f"{origin}: a setting's name is text, not {abbreviate(name)}.")
        found = _match(config, name)
        if len(found) != 1:
            raise _reject_name(name, found, root or config, prefix, origin)
        field, _, rest = found[0].partition(".")
        if rest:
            in_sections.setdefault(field, {})[rest] = value
        elif isinstance(getattr(config, field), Config) and isinstance(value, Mapping):
            in_sections.setdefault(field, {}).update(value)
        else:
            changes[field] = _convert_field(config, field, value, prefix, origin)
    for field, inside in in_sections.items():
        section, name = changes.get(field, getattr(config, field)), f"{prefix}{field}."
        changes[field] = apply_overrides(section, inside, origin=origin, root=root or config, prefix=name)
    if isinstance(config, Config):
        changes |= config.implied_changes(changes)
    return dataclasses.replace(config, **changes) if changes else config  # type: ignore[type-var]


def _convert_field(config: Any, field: str, value: Any, prefix: str, origin: str) -> Any:
    """The value of a field with the field's type; a section only becomes another section."""
    current = getattr(config, field)
    if not isinstance(current, Config):
        field_type = _field_types(config.__class__)[field]
        return convert_value(value, field_type, f"{origin}: the setting {prefix}{field}")
    if not isinstance(value, Config):
        raise _reject_section(current, prefix + field, origin)
    return value


def _reject_name(name: str, found: Sequence[str], root: Any, prefix: str, origin: str) -> Problem:
    """The problem with a name that matches no setting, or several."""
    if found:
        names = " or ".join(prefix + each for each in found)
        return Problem(f"{origin}: there is more than one setting {abbreviate(name)}; write {names}.")
    sections = [each for each, value, _ in _iterate_fields(root) if isinstance(value, Config)]
    settings = [each for each, _, _ in describe(root)]
    hint = suggest_setting(prefix + name, partial(_match, root), settings=settings, sections=sections)
    return Problem(f"{origin}: there is no setting {abbreviate(prefix + name)}; {hint}")


def _reject_section(section: Config, name: str, origin: str) -> Problem:
    """The problem with a single value for a section."""
    settings = describe(section)
    if not settings:
        return Problem(f"{origin}: the section {name} has no settings; leave it out.")
    example = f"{name}.{settings[0][0]}"
    return Problem(f"{origin}: {name} is a section; set what is in it by name, such as {example}.")


def _match(config: Any, name: str) -> list[str]:
    """The full names that match a name: the name itself, or every setting whose full name ends in it."""
    found = []
    for full, value, _ in _iterate_fields(config):
        if full == name:
            return [name]
        if full.endswith(f".{name}") and not isinstance(value, Config):
            found.append(full)
    return found


def _iterate_fields(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Full name, value and owner of every setting and every section, a section before what is in it."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        yield prefix + field.name, value, config
        if isinstance(value, Config):
            yield from _iterate_fields(value, f"{prefix}{field.name}.")


def find_help(config: Any, name: str) -> str:
    """The help of a field; a field with a new default alone has that of the class that the config extends."""
    fields = (getattr(each, "__dataclass_fields__", {}).get(name) for each in type(config).__mro__)
    return next((field.metadata["help"] for field in fields if field and "help" in field.metadata), "")


@functools.cache
def _field_types(config_class: type) -> dict[str, Any]:
    return typing.get_type_hints(config_class)


@functools.cache
def _field_limits(config_class: type) -> dict[str, Limits]:
    """The limits of the fields that have some, which a class that extends this one may set anew."""
    found: dict[str, Limits] = {}
    for each in reversed(config_class.__mro__):
        fields = getattr(each, "__dataclass_fields__", {}).items()
        found |= {name: field.metadata["limits"] for name, field in fields if field.metadata.get("limits")}
    return found


def has_setting(config: Any, name: str) -> bool:
    """Whether exactly one setting has this full or short name."""
    found = _match(config, name)
    return len(found) == 1 and found[0] in (full for full, _, _ in describe(config))


def get_setting(config: Any, name: str) -> Any:
    """The value of the setting with this full or short name."""
    found = _match(config, name)
    if len(found) != 1:
        raise _reject_name(name, found, config, "", type(config).__name__)
    return operator.attrgetter(found[0])(config)


def describe(config: Any) -> list[tuple[str, Any, str]]:
    """Full name, value and help of every setting, in order."""
    settings = (row for row in _iterate_fields(config) if not isinstance(row[1], Config))
    return [(name, value, find_help(owner, name.rpartition(".")[2])) for name, value, owner in settings]


def require_values(config: Any, reason: str, **values: Any) -> None:
    """Refuse other values of these settings; the message begins with the reason."""
    for name, value in values.items():
        if getattr(config, name) != value:
            raise Problem(f"{reason}: set {name} to {value}, not {getattr(config, name)}.")
