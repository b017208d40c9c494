"""The configuration of a model of the library transformers, read from JSON that a stranger may have written.

What could lead the library to code, kernels or files elsewhere is dropped, and sizes are checked before
anything is allocated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.limits import MAX_LAYERS
from noise2text.nn.huggingface import import_transformers

__all__ = ["check_architecture", "first_line", "parse_architecture", "read_architecture"]

_REFERENCES = {
    "_attn_implementation",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_name_or_path",
    "attn_implementation",
    "auto_map",
    "custom_pipelines",
    "experts_implementation",
    "kernel_config",
    "quantization_config",
    "transformers_version",
}
"""Fields of a configuration that name code, kernels (`org/name` of the hub) or files, or only describe it."""


def read_architecture(folder: Path) -> Any:
    """The library's configuration in a folder that has safetensors."""
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(
            f"There is no config.json in {folder}; name a folder that transformers has written."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise Problem(f"There are no weights in {folder}: they must be safetensors, which run no code.")
    return parse_architecture(text, where=str(folder / "config.json"))


def parse_architecture(text: str, *, where: str) -> Any:
    """The library's configuration that this JSON describes; `where` says in messages where it is."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        _require_few_layers(fields)
        return import_transformers().AutoConfig.for_model(**_drop_references(fields))
    except Problem:
        raise
    except Exception as error:  # whatever the library raises for values that it did not expect
        raise Problem(f"{where} is no configuration that transformers knows: {first_line(error)}.") from error


def _drop_references(value: Any) -> Any:
    """The configuration without what would lead the library to code, kernels or files elsewhere."""
    if isinstance(value, dict):
        return {name: _drop_references(each) for name, each in value.items() if name not in _REFERENCES}
    return [_drop_references(each) for each in value] if isinstance(value, list) else value


def _require_few_layers(fields: Mapping[str, Any]) -> None:
    """Refuse numbers of layers that would take minutes to build before their weights are found missing."""
    for name, value in fields.items():
        if isinstance(value, dict):
            _require_few_layers(value)
        elif "layer" in name and isinstance(value, int) and not 0 <= value <= MAX_LAYERS:
            raise ValueError(f"{name} must be between 0 and {MAX_LAYERS:,}")


def first_line(error: Exception) -> str:
    """The beginning of a message of the library."""
    lines = str(error).splitlines()
    return (lines[0] if lines else type(error).__name__)[:100]


def check_architecture(architecture: Any, tokenizer: Tokenizer, needed: int) -> None:
    """Raise a Problem, before weights are allocated, if the tokenizer or the longest pair does not fit."""
    size = getattr(architecture, "vocab_size", None)
    if size is None:
        raise Problem(
            f"The pre-trained {architecture.model_type} consists of two models with two vocabularies; use "
            f"one with a single vocabulary, such as T5 or BART."
        )
    if size < len(tokenizer):
        raise Problem(
            f"The pre-trained model has {size} tokens, but its tokenizer {len(tokenizer)}; set "
            f"tokenizer to folder, or use a folder whose files belong together."
        )
    positions = getattr(architecture, "max_position_embeddings", None)
    if positions is not None and needed > positions:
        raise Problem(
            f"The pre-trained model has {positions} positions, but the longest pair needs {needed}; lower "
            f"max_source or max_target."
        )
