"""Fit a baseline without training steps to a corpus, validate it and save it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noise2text.commands.display import Display
from noise2text.commands.run_card import write_run_card
from noise2text.commands.run_data import TrainingData
from noise2text.commands.validation import score_generations
from noise2text.models.folder import save
from noise2text.models.registry import Fit, Recipe
from noise2text.training.callbacks import Callbacks, TrainingStart

__all__ = ["fit_baseline"]


def fit_baseline(
    recipe: Recipe,
    fit: Fit,
    config: Any,
    data: TrainingData,
    out: Path,
    display: Display,
    *,
    callbacks: Callbacks,
) -> None:
    """Write the fitted model and its validation scores to the run's folder."""
    config, model = fit(config, data.tokenizer, data.train)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    with callbacks.follow(TrainingStart(recipe.name, config, out, num_parameters, first_step=0, last_step=0)):
        scores = score_generations(model, data.validation_pairs)
        callbacks.on_validation(0, scores)
        save(out, model, recipe=recipe.name, config=config)
        write_run_card(
            out,
            recipe=recipe.name,
            config=config,
            data=data,
            num_parameters=num_parameters,
            step=0,
            training="",
        )
    shown = "  ".join(f"{name} {score:.3f}" for name, score in scores.items())
    display.show_line(f"done: {recipe.name} over {len(data.train):,} pairs (valid {shown}) is in {out}")
