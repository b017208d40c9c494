"""What the page shows: the results of one or several models for the same texts.

{"seed": 0, "models": [{"name": "de-en", "selection": "mbr|…"}], "inputs": [[result of each model], …]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noise2text.core.config import apply_overrides, has_setting
from noise2text.core.errors import Problem
from noise2text.models.base import Model
from noise2text.serving.result import TextResult, keep_steps, make_results

__all__ = ["PageData", "PageModel", "collect_page_data", "name_models"]

MAX_STEPS = 40  # of a result, so that a page of 2,000 steps stays readable


@dataclass(frozen=True)
class PageModel:
    """A model on the page: its name, and the signature of the rule that selects."""

    name: str
    selection: str


@dataclass(frozen=True)
class PageData:
    """The results of every model for every text: inputs[i][m] is that of model m for text i."""

    seed: int
    models: list[PageModel]
    inputs: list[list[TextResult]]

    def as_json(self) -> dict[str, Any]:
        """The data as JSON has it."""
        return asdict(self)


def collect_page_data(
    models: Mapping[str, Model], texts: Sequence[str], *, seed: int, overrides: Mapping[str, Any]
) -> PageData:
    """The traced results of these models, by name, for all texts that are not empty.

    A setting counts for the models that have it; one that none has is a Problem.
    """
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise Problem("There is no text to show: give at least one line that is not empty.")
    known = {
        key for key in overrides for model in models.values() if has_setting(model.generation_config, key)
    }
    described, columns = [], []
    for name, model in models.items():
        own = {
            key: value
            for key, value in overrides.items()
            if key not in known or has_setting(model.generation_config, key)
        }
        config = apply_overrides(model.generation_config, own, origin="page")
        output = model.generate(texts, seed=seed, trace=True, progress=True, **own)
        described.append(PageModel(name, model.build_selector(config).signature))
        columns.append([keep_steps(result, MAX_STEPS) for result in make_results(texts, output)])
    return PageData(seed, described, [list(row) for row in zip(*columns, strict=True)])


def name_models(folders: Sequence[Path]) -> list[str]:
    """A name for each model folder: the folder's, or the whole path where two have the same."""
    if len(set(folders)) < len(folders):
        raise Problem("A model is given twice: name each one once with --model.")
    names = [folder.name or str(folder) for folder in folders]
    return [
        name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)
    ]
