"""Small models of every recipe that learns by recordable steps, and a few steps of training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from noise2text.core.config import apply_overrides
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.models.registry import find_recipe, recipes
from noise2text.training import step_runner as passes
from noise2text.training.loop import train_steps
from noise2text.training.step_runner import StepRunner

from ..conftest import SMALL

GRAPHABLE_RECIPES = [
    name
    for name, recipe in recipes().items()
    if recipe.fit is None and not name.startswith("pretrained") and name not in ("gpvae", "levenshtein")
]
"""Recipes that learn by steps which can be recorded."""

SHAPES = [(6, 5), (9, 8)]
STEPS = 8


def build_small(name: str, tokenizer: Tokenizer, device: str, dropout: float = 0.0) -> tuple[Model, Any]:
    recipe = find_recipe(name)
    known = {field.name for field in dataclasses.fields(recipe.preset("tiny"))}
    small = {key: value for key, value in (SMALL | {"dropout": dropout}).items() if key in known}
    config = recipe.resolve(apply_overrides(recipe.preset("tiny"), small, origin="a test"), tokenizer)
    torch.manual_seed(0)
    model: Model = recipe.build(config, tokenizer).to(device)
    return model, recipe.objective(config, model)


def make_batches(model: Model, device: str) -> Callable[[int], Sequence[Canvas]]:
    """Two micro-batches a step, of a shape that changes from step to step."""

    def batches(step: int) -> Sequence[Canvas]:
        shape = SHAPES[step // 2 % 2]
        rows = [[7 + (row + step) % 5] * (2 + row % 3) for row in range(4)]
        canvas = model.layout.make_canvas(
            RaggedRows.from_lists(rows), RaggedRows.from_lists(rows[::-1]), shape=shape
        )
        return [canvas.to(device), canvas.to(device)]

    return batches


def train_small(
    name: str,
    tokenizer: Tokenizer,
    step_runner: StepRunner,
    device: str,
    *,
    compiled: bool = False,
    dropout: float = 0.0,
    is_logged: Callable[[int], bool] = lambda step: step % 3 == 0,
) -> tuple[list[float], dict[str, Any]]:
    model, objective = build_small(name, tokenizer, device, dropout)
    if compiled:
        passes.fuse(objective)
    reports = train_steps(
        objective,
        torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05),
        make_batches(model, device),
        first=1,
        last=STEPS,
        peak_lr=0.05,
        lr_schedule=lambda step: 1.0,
        clip_norm=1.0,
        seed=0,
        step_runner=step_runner,
        is_logged=is_logged,
    )
    losses = [float(report.loss) for report in reports]
    state = model.state_dict() | objective.state_dict()
    return losses, {key: value.cpu() for key, value in state.items()}
