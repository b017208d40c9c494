"""The facts about a model that need no generation: its size, settings, schedule and embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noise2text.core.config import describe
from noise2text.diffusion.anisotropy import anisotropy
from noise2text.models import DiffusionModel
from noise2text.models.folder import load, load_config, load_engine

__all__ = ["inspect_model"]


def inspect_model(folder: Path) -> dict[str, dict[str, Any]]:
    """The facts by heading, settings by full name; the anisotropy is the mean cosine of two embeddings."""
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
        facts["schedule"] = f"{type(model.schedule).__name__}, {model.schedule.num_timesteps:,} timesteps"
        facts["anisotropy"] = anisotropy(model.denoiser.embedding.vectors.detach())
    return {
        "model": facts,
        "settings": {name: value for name, value, _ in describe(config)},
        "generation": {name: value for name, value, _ in describe(model.generation_config)},
    }
