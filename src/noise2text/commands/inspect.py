"""What can be seen of a model without running it: its settings, its size, its embeddings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.diffusion.rescaling import find_factor, random_embeddings, rescale_plain, rescale_preserving
from noise2text.diffusion.schedules import SCHEDULES
from noise2text.models import DiffusionModel
from noise2text.models.folder import load, load_config, load_engine

__all__ = ["find_noise_factor", "inspect_model"]


def inspect_model(folder: Path) -> dict[str, dict[str, Any]]:
    """A model's facts by heading; the anisotropy is the mean cosine of two embeddings (Difformer, 3.1)."""
    recipe, config = load_config(folder)
    engine = load_engine(folder)
    model = load(folder, device="cpu", precision=engine.precision if engine else "float32")
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    facts: dict[str, Any] = {
        "recipe": recipe.name,
        "paper": recipe.paper,
        "parameters": engine.parameters if engine else num_parameters,
        "vocabulary": len(model.tokenizer),
    }
    if engine:
        facts["engine"] = f"{engine.name}, {engine.precision}"
    if isinstance(model, DiffusionModel):
        facts["schedule"] = f"{type(model.schedule).__name__.lower()}, {model.schedule.steps} steps"
        facts["anisotropy"] = anisotropy(model.denoiser.embedding.vectors.detach())
    return {
        "model": facts,
        "settings": dataclasses.asdict(config),
        "generation": dataclasses.asdict(model.generation_config),
    }


def find_noise_factor(
    model_folder: Path | None,
    *,
    schedule: str,
    vocab: int,
    dim: int,
    target: float,
    preserving: bool,
    seed: int,
) -> dict[str, float]:
    """The factor for random embeddings, or for a trained model's own embeddings and schedule."""
    if model_folder is None:
        if vocab < 2 or dim < 1:
            raise Problem(f"There must be at least 2 embeddings of 1 dimension, not {vocab} of {dim}.")
        noise_schedule, embeddings = SCHEDULES[schedule](), random_embeddings(vocab, dim, seed=seed)
    else:
        engine = load_engine(model_folder)
        model = load(model_folder, device="cpu", precision=engine.precision if engine else "float32")
        if not isinstance(model, DiffusionModel):
            raise Problem(f"{model_folder} is not a diffusion model: it has no noise to rescale.")
        noise_schedule, embeddings = model.schedule, model.denoiser.embedding.vectors.detach()
    rescale = rescale_preserving if preserving else rescale_plain
    return dataclasses.asdict(
        find_factor(noise_schedule, embeddings, target=target, rescale=rescale, seed=seed)
    )
