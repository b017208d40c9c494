"""Noise to text: embedding-space diffusion models for sequence-to-sequence generation.

import noise2text
model = noise2text.load("runs/demo")
model.generate(["sunday, 7 april 1957"], steps=20, length_beam=5, noise_beam=2, seed=0).texts
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noise2text.commands.train import train
    from noise2text.models.folder import load

__all__ = ["Problem", "__version__", "load", "train"]

from noise2text.core.errors import Problem
from noise2text.core.version import __version__

_PLACES = {"load": "noise2text.models.folder", "train": "noise2text.commands.train"}


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'noise2text' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
