"""Tiny systems for the analyses that run models.

They are untrained, but what they write depends on the noise, the step and the source, and has words enough in
common with the references that no score is trivially 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from noise2text.data.corpus import Pair
from noise2text.data.tokenizer import learn_characters
from noise2text.models import Model
from noise2text.models.folder import save
from noise2text.models.registry import find_recipe

from ..conftest import lively, shrunk

PAIRS = [
    Pair("?!=;?!==", "?!=!;=?"),
    Pair(";=?!", "!==;?!", ("?=!;",)),
    Pair("=?", ";?=!!"),
]
SOURCES = [pair.src for pair in PAIRS]
DIFFUSION = ("difformer", "diffuseq", "seqdiffuseq")
TOKENIZER = learn_characters(["?!=;"])  # to sacrebleu each of them is a word


def settings_for(name: str, **changes: Any) -> Any:
    """The tiny settings of a recipe, made smaller."""
    return shrunk(find_recipe(name).preset("tiny"), **changes)


def tiny(name: str, **changes: Any) -> Model:
    """A small untrained system of the recipe."""
    torch.manual_seed(0)
    model: Model = find_recipe(name).build(settings_for(name, **changes), TOKENIZER)
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            if (
                part.startswith(("denoiser.input_projection.weight", "denoiser.combine"))
                and parameter.ndim == 2
            ):
                parameter.mul_(10)
            if part == "denoiser.embedding.bias":
                parameter[sorted(TOKENIZER.special_tokens)] -= 40  # so that few texts end early
    return lively(model)


def find_model_folder(name: str, folder: Path) -> Path:
    """The folder of such a system."""
    save(folder, tiny(name), recipe=name, config=settings_for(name))
    return folder
