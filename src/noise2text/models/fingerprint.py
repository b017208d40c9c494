"""Which model a folder holds: a hash of the files that a model is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.models.shipped import folder_of

__all__ = ["identity"]

FILES = ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors")
GUIDE = ("config.json", "model.safetensors")  # what a classifier is made of


def identity(folder: Path, *, guide: str = "") -> str:
    """The same for two folders only if their models, steered by a guide if any, would generate the same."""
    found = _digest(folder_of(folder), FILES)
    if guide:
        found.update(_digest(Path(guide), GUIDE).digest())
    return found.hexdigest()[:16]


def _digest(folder: Path, names: Sequence[str]) -> Any:
    found = hashlib.sha256()
    for name in names:
        found.update(name.encode())
        try:
            with (folder / name).open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise Problem(f"{folder} is not a complete model: {name} cannot be read.") from error
    return found
