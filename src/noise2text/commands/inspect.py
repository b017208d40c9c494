"""What can be seen of a model without running it: its settings, its size, its embeddings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.diffusion.rescaling import find_factor, random_embeddings, rescale_plain, rescale_preserving
from noise2text.diffusion.schedules import SCHEDULES
from noise2text.models import Diffusion
from noise2text.models.folder import engine_of, load, settings_of

__all__ = ["look", "rescaling"]


def look(folder: Path) -> dict[str, dict[str, Any]]:
    """A model's facts by heading; the anisotropy is the mean cosine of two embeddings (Difformer, 3.1)."""
    recipe, settings = settings_of(folder)
    engine = engine_of(folder)
    system = load(folder, device="cpu", precision=engine.precision if engine else "float32")
    own = sum(parameter.numel() for parameter in system.parameters())
    facts: dict[str, Any] = {
        "recipe": recipe.name,
        "paper": recipe.paper,
        "parameters": engine.parameters if engine else own,
        "vocabulary": len(system.tokenizer),
    }
    if engine:
        facts["engine"] = f"{engine.name}, {engine.precision}"
    if isinstance(system, Diffusion):
        facts["schedule"] = f"{type(system.schedule).__name__.lower()}, {system.schedule.steps} steps"
        facts["anisotropy"] = anisotropy(system.denoiser.space.embeddings.detach())
    return {
        "model": facts,
        "settings": dataclasses.asdict(settings),
        "generation": dataclasses.asdict(system.how),
    }


def rescaling(
    model: Path | None, *, schedule: str, vocab: int, dim: int, target: float, preserving: bool, seed: int
) -> dict[str, float]:
    """The factor for random embeddings, or for a trained model's own embeddings and schedule."""
    if model is None:
        if vocab < 2 or dim < 1:
            raise Problem(f"There must be at least 2 embeddings of 1 dimension, not {vocab} of {dim}.")
        curve, embeddings = SCHEDULES[schedule](), random_embeddings(vocab, dim, seed=seed)
    else:
        engine = engine_of(model)
        system = load(model, device="cpu", precision=engine.precision if engine else "float32")
        if not isinstance(system, Diffusion):
            raise Problem(f"{model} is not a diffusion model: it has no noise to rescale.")
        curve, embeddings = system.schedule, system.denoiser.space.embeddings.detach()
    rescale = rescale_preserving if preserving else rescale_plain
    return dataclasses.asdict(find_factor(curve, embeddings, target=target, rescale=rescale, seed=seed))
