"""Models that come with the package, by their names: `noise2text.load("de-en")`.

Each is a model folder like any other, with a model card (README.md) that says what it was trained on, what it
can and cannot do, and its scores. A folder of the same name in the working directory takes precedence. Other
names are those of models on the Hugging Face hub (`models/hub.py`).
"""

from __future__ import annotations

from pathlib import Path

from noise2text.core.errors import Problem, abbreviate
from noise2text.core.files import exists

__all__ = ["find_model_folder", "list_shipped_models"]

_MODELS = Path(__file__).parents[1] / "shipped_models"


def list_shipped_models() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.parent.name for path in _MODELS.glob("*/config.json"))


def find_model_folder(model: str | Path, *, revision: str | None = None) -> Path:
    """The folder of a model: that of this path, the shipped one of this name, or one fetched from the hub."""
    path, name = Path(model), str(model)
    if revision is not None and not isinstance(revision, str):
        raise Problem(f"A revision is the name of a branch, tag or commit, not {abbreviate(revision)}.")
    found = path if exists(path) else _MODELS / name if name in list_shipped_models() else None
    if found is None:
        from noise2text.models.hub import download_model, is_hub_name

        if is_hub_name(name):
            return download_model(name, revision=revision)
    if revision is not None:
        raise Problem(f"Only a model on the hub has revisions, and {abbreviate(name)} is none: leave it out.")
    return found or path
