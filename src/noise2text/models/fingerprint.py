"""The fingerprint of a model: a hash of the files in its folder that decide what it generates.

A job that is resumed compares fingerprints. Damage to a folder is found by `model_files.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.models.shipped import find_model_folder

__all__ = ["fingerprint_model"]

MODEL_FILES = ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors")
CLASSIFIER_FILES = ("config.json", "model.safetensors")


def fingerprint_model(folder: Path, *, classifier: str = "") -> str:
    """A hash of the model in a folder, and of the classifier that guides it, if any.

    Folders with the same fingerprint generate the same texts.
    """
    digest = _hash_files(find_model_folder(folder), MODEL_FILES)
    if classifier:
        digest.update(_hash_files(Path(classifier), CLASSIFIER_FILES).digest())
    return digest.hexdigest()[:16]


def _hash_files(folder: Path, names: Sequence[str]) -> Any:
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode())
        try:
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise Problem(f"{folder} is not a complete model: {name} cannot be read.") from error
    return digest
