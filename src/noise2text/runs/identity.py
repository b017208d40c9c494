"""Which model a folder holds: a hash of the files that a model is made of."""

from __future__ import annotations

import hashlib
from pathlib import Path

from noise2text.problem import Problem

__all__ = ["identity"]

FILES = ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors")


def identity(folder: Path) -> str:
    """The same for two folders only if their models would generate the same."""
    found = hashlib.sha256()
    for name in FILES:
        found.update(name.encode())
        try:
            with (folder / name).open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise Problem(f"{folder} is not a complete model: {name} cannot be read.") from error
    return found.hexdigest()[:16]
