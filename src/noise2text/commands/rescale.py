"""Find the noise factor that keeps a schedule from degenerating (Difformer, appendix D)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.diffusion.degeneration_score import find_noise_factor, random_embeddings
from noise2text.diffusion.schedules import SCHEDULES, Rescaled, Schedule, rescale_preserving
from noise2text.models import DiffusionModel
from noise2text.models.folder import load, load_engine

__all__ = ["suggest_noise_factor"]


def suggest_noise_factor(
    model_folder: Path | None,
    *,
    schedule: str,
    vocab: int,
    dim: int,
    target: float,
    preserving: bool,
    seed: int,
) -> dict[str, float]:
    """The noise factor and its scores, for random embeddings or for a model's embeddings and schedule."""
    if model_folder is None:
        if vocab < 2 or dim < 1:
            raise Problem(f"At least 2 embeddings of 1 dimension are needed, not {vocab} of {dim}.")
        if schedule not in SCHEDULES:
            raise Problem(f"The schedule is one of {', '.join(SCHEDULES)}, not {schedule!r}.")
        noise_schedule: Schedule = SCHEDULES[schedule]()
        embeddings = random_embeddings(vocab, dim, seed=seed)
    else:
        engine = load_engine(model_folder)
        model = load(model_folder, device="cpu", precision=engine.precision if engine else "float32")
        if not isinstance(model, DiffusionModel):
            raise Problem(f"{model_folder} is not a diffusion model, so it has no noise to rescale.")
        noise_schedule, embeddings = model.schedule, model.denoiser.embedding.vectors.detach()
    rescale = rescale_preserving if preserving else Rescaled
    return dataclasses.asdict(
        find_noise_factor(noise_schedule, embeddings, target=target, rescale=rescale, seed=seed)
    )
