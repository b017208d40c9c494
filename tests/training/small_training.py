"""Small models of every recipe whose training steps CUDA graphs can record, and a few steps of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from noise2text.acceleration.cuda_graph_training import CudaGraphTrainingPass
from noise2text.core.config import apply_overrides, has_setting
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.models.registry import find_recipe, list_recipes
from noise2text.training.distributed import SingleProcess
from noise2text.training.loop import Autocast, EagerPass, StepSettings, train_steps
from noise2text.training.process_group import ProcessGroup

from ..conftest import SMALL

GRAPHABLE_RECIPES = [
    name
    for name, recipe in list_recipes().items()
    if recipe.fit is None and not name.startswith("pretrained") and name not in ("gpvae", "levenshtein")
]
"""Recipes whose training steps CUDA graphs can record."""

SHAPES = [(6, 5), (9, 8)]
STEPS = 8


def build_small(name: str, tokenizer: Tokenizer, device: str, dropout: float = 0.0) -> tuple[Model, Any]:
    recipe = find_recipe(name)
    tiny = recipe.preset("tiny")
    small = {key: value for key, value in (SMALL | {"dropout": dropout}).items() if has_setting(tiny, key)}
    config = recipe.resolve(apply_overrides(tiny, small, origin="a test"), tokenizer)
    torch.manual_seed(0)
    model: Model = recipe.build(config, tokenizer).to(device)
    return model, recipe.objective(config, model)


def make_batches(model: Model, device: str) -> Callable[[int], Sequence[Canvas]]:
    """Two micro-batches per step, of a shape that changes from step to step."""

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
    device: str,
    *,
    prepare: Callable[[Any], object] = lambda objective: None,
    captured: bool = False,
    autocast: Autocast = nullcontext(),
    dropout: float = 0.0,
    is_logged: Callable[[int], bool] = lambda step: step % 3 == 0,
) -> tuple[list[float], dict[str, Any]]:
    """The losses of a few steps, and the weights and buffers after them; `captured` ones have CUDA graphs."""
    model, objective = build_small(name, tokenizer, device, dropout)
    prepare(objective)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.05)
    eager_pass = EagerPass(SingleProcess(objective, model, ProcessGroup()), optimizer, autocast)
    reports = train_steps(
        objective,
        optimizer,
        make_batches(model, device),
        first=1,
        last=STEPS,
        settings=StepSettings(peak_lr=0.05, lr_schedule=lambda step: 1.0, clip_norm=1.0, seed=0),
        training_pass=CudaGraphTrainingPass(eager_pass, objective, trained) if captured else eager_pass,
        is_logged=is_logged,
    )
    losses = [float(report.loss) for report in reports]
    state = model.state_dict() | objective.state_dict()
    return losses, {key: value.cpu() for key, value in state.items()}
