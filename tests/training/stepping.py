"""Small models of every recipe that learns by recordable steps, and a few steps of training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from noise2text.core.config import change
from noise2text.data.layouts.canvas import Canvas
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import System
from noise2text.models.registry import find_recipe, recipes
from noise2text.training import step_runner as passes
from noise2text.training.loop import train_steps
from noise2text.training.step_runner import Pass

from ..conftest import SMALL

LEARNED = [
    name
    for name, recipe in recipes().items()
    if recipe.fit is None and not name.startswith("pretrained") and name not in ("gpvae", "levenshtein")
]
"""Recipes that learn by steps which can be recorded."""

SHAPES = [(6, 5), (9, 8)]
STEPS = 8


def made(name: str, tokenizer: Tokenizer, device: str, dropout: float = 0.0) -> tuple[System, Any]:
    recipe = find_recipe(name)
    known = {field.name for field in dataclasses.fields(recipe.settings("tiny"))}
    small = {key: value for key, value in (SMALL | {"dropout": dropout}).items() if key in known}
    settings = recipe.resolve(change(recipe.settings("tiny"), small, where="a test"), tokenizer)
    torch.manual_seed(0)
    system: System = recipe.build(settings, tokenizer).to(device)
    return system, recipe.objective(settings, system)


def feed_of(system: System, device: str) -> Callable[[int], Sequence[Canvas]]:
    """Two micro-batches a step, of a shape that changes from step to step."""

    def feed(step: int) -> Sequence[Canvas]:
        shape = SHAPES[step // 2 % 2]
        rows = [[7 + (row + step) % 5] * (2 + row % 3) for row in range(4)]
        canvas = system.layout.canvas(Rows.of(rows), Rows.of(rows[::-1]), shape=shape)
        return [canvas.to(device), canvas.to(device)]

    return feed


def trained(
    name: str,
    tokenizer: Tokenizer,
    run: Pass,
    device: str,
    *,
    compiled: bool = False,
    dropout: float = 0.0,
    looked: Callable[[int], bool] = lambda step: step % 3 == 0,
) -> tuple[list[float], dict[str, Any]]:
    system, objective = made(name, tokenizer, device, dropout)
    if compiled:
        passes.fuse(objective)
    ticks = train_steps(
        objective,
        torch.optim.SGD([p for p in system.parameters() if p.requires_grad], lr=0.05),
        feed_of(system, device),
        first=1,
        last=STEPS,
        peak=0.05,
        rate=lambda step: 1.0,
        clip=1.0,
        seed=0,
        run=run,
        looked=looked,
    )
    losses = [float(tick.loss) for tick in ticks]
    state = system.state_dict() | objective.state_dict()
    return losses, {key: value.cpu() for key, value in state.items()}
