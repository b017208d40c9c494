"""Building the network of a model from a stranger: never larger than its weights explain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noise2text.core.allocation_limit import TABLE_ELEMENTS, AllocationLimit
from noise2text.core.config import describe, has_setting
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.base import Model
from noise2text.models.model_files import CONFIG_FILE, ModelFiles
from noise2text.models.registry import Recipe

__all__ = ["MAX_LAYERS", "build_for_weights", "build_within_limits"]

MAX_LAYERS = 1_000
"""The most layers of a network that is loaded."""

_REFERENCES = ("model.from_folder", "model.embeddings_from")
_SECTION_LIMITS = {
    "data": TABLE_ELEMENTS,
    "model": TABLE_ELEMENTS,
    "diffusion": TABLE_ELEMENTS,
    "generation": 100_000,  # steps and candidates
}


def build_within_limits(recipe: Recipe, config: Any, tokenizer: Tokenizer, files: ModelFiles) -> Model:
    """The untrained model of the config; a Problem, before much is allocated, if its weights are far smaller.

    The network of an exported model is in its graphs, whose sizes count as weights.
    """
    path, weights = files.folder / CONFIG_FILE, files.weights
    graphs = sum(graph.stat().st_size for graph in files.folder.glob("*.onnx"))
    tensors = len(weights.specs) + (100 * MAX_LAYERS if graphs else 0)
    return build_for_weights(
        recipe, config, tokenizer, elements=weights.num_elements + graphs, tensors=tensors, path=path
    )


def build_for_weights(
    recipe: Recipe, config: Any, tokenizer: Tokenizer, *, elements: int, tensors: int, path: Path
) -> Model:
    """The untrained model for so many weights; `path` names the file that describes it in messages."""
    _require_possible_sizes(config, path)
    try:
        with AllocationLimit(elements, tensors, str(path)):
            model: Model = recipe.build(_without_references(config), tokenizer)
    except Problem:
        raise
    except Exception as error:  # whatever torch and transformers raise for values that they did not expect
        reason = str(error).partition("\n")[0][:150]
        raise Problem(
            f"{path} describes a network that cannot be built ({reason}); copy it again."
        ) from error
    return model


def _without_references(config: Any) -> Any:
    """The config without the folders that training started from: a model is loaded from its own alone."""
    names = [name for name in _REFERENCES if has_setting(config, name)]
    return config.replace(dict.fromkeys(names, "")) if names else config


def _require_possible_sizes(config: Any, path: Path) -> None:
    """Refuse numbers of layers, and sizes of tables, that no model has."""
    for name, value, _ in describe(config):
        if isinstance(value, int):
            limit = MAX_LAYERS if "layers" in name else _SECTION_LIMITS.get(name.partition(".")[0], value)
            if value > limit:
                raise Problem(f"{path}: the setting {name} may be {limit:,} in a model, not {value:,}.")
