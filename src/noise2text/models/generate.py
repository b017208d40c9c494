"""Generation in one call: a model by its folder or name, texts in, texts out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from noise2text.models.base import GenerationOutput, Model
from noise2text.models.folder import load

__all__ = ["generate"]


def generate(
    model: str | Path | Model,
    texts: Sequence[str],
    *,
    device: str | torch.device | None = None,
    precision: str = "auto",
    **options: Any,
) -> GenerationOutput:
    """The text that a model generates for each text, with all candidates and their scores.

    Args:
        model: a loaded model, the folder of one, or the name of a shipped one. To use a model more than once,
            load it with `noise2text.load`.
        texts: the sources, such as the sentences to translate.
        device, precision: as for `noise2text.load`; a loaded model stays where it is.
        options: those of `Model.generate`: `seed`, `batch`, `trace`, and every generation setting of the
            model by its name, such as `steps`, `length_beam` or `select`.

    Returns:
        A `GenerationOutput`, in the order of the texts.

    >>> from noise2text import generate
    >>> generate("de-en", ["Wo ist der Bahnhof?"], device="cpu", precision="float32").texts
    ['Where is the train station?']
    """
    if not isinstance(model, Model):
        model = load(model, device=device, precision=precision)
    return model.generate(texts, **options)
