"""Noise to text: embedding-space diffusion models for sequence-to-sequence generation.

import noise2text
model = noise2text.load("runs/demo")
model.generate(["sunday, 7 april 1957"], steps=20, length_beam=5, noise_beam=2, seed=0).texts
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noise2text.recipes import load
    from noise2text.runs.train import train

__version__ = "0.1.0"
__all__ = ["Problem", "__version__", "load", "train"]

from noise2text.problem import Problem

_PLACES = {"load": "noise2text.recipes", "train": "noise2text.runs.train"}


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'noise2text' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
