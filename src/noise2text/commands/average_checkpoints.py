"""The average of several models of one run, as a new model folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from safetensors.torch import load_file, save_file

from noise2text.core.errors import Problem
from noise2text.core.files import write_atomically
from noise2text.training.averaging import average_states

__all__ = ["average_models"]


def average_models(folders: Sequence[Path], out: Path) -> None:
    """Write the mean of the folders' weights to `out`, with the other files of the first folder."""
    states = [load_file(folder / "model.safetensors") for folder in folders]
    if len({str({name: value.shape for name, value in state.items()}) for state in states}) != 1:
        raise Problem(
            f"{folders[0]} and the others differ in shape and cannot be averaged: name models of one run."
        )
    out.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        write_atomically(out / name, partial(shutil.copyfile, folders[0] / name))
    write_atomically(
        out / "model.safetensors",
        lambda path: save_file(average_states(states), path, metadata={"format": "pt"}),
    )
