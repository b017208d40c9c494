"""Tokenise a corpus into memory-mapped files, once for many runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from noise2text.commands.run_data import TrainingData, load_data
from noise2text.commands.run_setup import build_config, require_empty
from noise2text.models.registry import find_recipe

__all__ = ["prepare"]


def prepare(
    train: str,
    valid: str,
    *,
    out: Path,
    recipe: str = "difformer",
    preset: str | None = None,
    config: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    skip_bad: bool = False,
    show_line: Callable[[str], None] = print,
) -> TrainingData:
    """The tokenised pairs, which are now in OUT/train and OUT/valid."""
    settings = build_config(find_recipe(recipe), preset, config, changes or {})
    require_empty(out)
    return load_data(train, valid, out, settings, skip_bad=skip_bad, show_line=show_line)
