"""Models that come with the package, by their names: `noise2text.load("de-en")`.

Each is a model folder like any other, with a model card (README.md) that says what it was trained on, what it
can and cannot do, and its scores. A folder of the same name in the working directory takes precedence.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["find_model_folder", "list_shipped_models"]

_MODELS = Path(__file__).parents[1] / "shipped_models"


def list_shipped_models() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.parent.name for path in _MODELS.glob("*/config.json"))


def find_model_folder(model: str | Path) -> Path:
    """The folder of a model: the one of this path, or else the shipped one of this name."""
    path = Path(model)
    return _MODELS / str(model) if str(model) in list_shipped_models() and not path.exists() else path
