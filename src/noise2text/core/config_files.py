"""Configs as YAML files: `to_yaml` writes every setting with its help, `read_config` reads them back."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from noise2text.core.config import Config, find_help
from noise2text.core.errors import Problem
from noise2text.core.files import read_limited
from noise2text.core.plain_yaml import MAX_YAML_BYTES, parse_yaml

__all__ = ["read_config", "to_yaml"]


def to_yaml(config: Any) -> str:
    """The config as YAML with every setting's help beside it; `read_config` and `apply_overrides` read it."""
    return "\n".join(_yaml_lines(config)).strip("\n") + "\n"


def _yaml_lines(config: Any) -> Iterator[str]:
    after_section = False
    for field in dataclasses.fields(config):
        value, help = getattr(config, field.name), " ".join(find_help(config, field.name).split())
        if isinstance(value, Config) or after_section:
            yield ""
        after_section = isinstance(value, Config)
        if after_section:
            inside = [f"  {line}" if line else "" for line in _yaml_lines(value)]
            yield from [f"# {help}"] if help else []
            yield f"{field.name}:" if inside else f"{field.name}: {{}}"
            yield from inside
        else:
            yield f"{field.name}: {_yaml_value(value)}  # {help}".rstrip(" #")


def _yaml_value(value: Any) -> str:
    """The value on one line of YAML; text is quoted where it could be read as something else."""
    import yaml

    style = '"' if isinstance(value, str) and not re.fullmatch(r"[A-Za-z][\w./+-]*", value) else None
    text = yaml.safe_dump(
        value, default_flow_style=True, default_style=style, width=math.inf, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        text = read_limited(path, MAX_YAML_BYTES).decode("utf-8")
    except OSError as error:
        raise Problem(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise Problem(f"The configuration {path} is not UTF-8 text.") from error
    loaded = parse_yaml(text, what=f"The configuration {path}")
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise Problem(f"The configuration {path} must hold `setting: value` lines.")
    return loaded
