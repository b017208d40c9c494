"""The average of several models of one run, as a new model folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.core.json_files import read_ordinary_file
from noise2text.core.weights_file import read_weights
from noise2text.models.model_files import (
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    write_model_files,
)
from noise2text.training.averaging import average_states

__all__ = ["average_models"]


def average_models(folders: Sequence[Path], out: Path) -> None:
    """Write the mean of the folders' weights to `out`, with the other files of the first folder."""
    states = [read_weights(folder / WEIGHTS_FILE) for folder in folders]
    if len({str({name: value.shape for name, value in state.items()}) for state in states}) != 1:
        raise Problem(
            f"{folders[0]} and the others differ in shape and cannot be averaged: name models of one run."
        )
    names = (CONFIG_FILE, GENERATION_FILE, TOKENIZER_FILE)
    write_model_files(
        out, average_states(states), {name: read_ordinary_file(folders[0] / name) for name in names}
    )
