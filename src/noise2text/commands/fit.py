"""Train what has no steps: take the corpus in, judge, save. There is nothing to resume; it is done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noise2text.commands.display import Display
from noise2text.commands.metrics_log import Metrics
from noise2text.commands.run_data import Data
from noise2text.commands.validation import judge
from noise2text.models.folder import save
from noise2text.models.registry import Fit, Recipe

__all__ = ["learn_at_once"]


def learn_at_once(recipe: Recipe, fit: Fit, settings: Any, data: Data, out: Path, display: Display) -> None:
    """Leave the system that the corpus makes, and its validation, in the run's folder."""
    settings, system = fit(settings, data.tokenizer, data.train)
    scores = judge(system, data.sample)
    metrics = Metrics(out, tensorboard=False)
    metrics.rewind(-1)
    metrics.valid(0, scores)
    save(out, system, recipe=recipe.name, settings=settings)
    shown = "  ".join(f"{name} {score:.3f}" for name, score in scores.items())
    display.say(f"done: {recipe.name} over {len(data.train):,} pairs (valid {shown}) is {out}")
