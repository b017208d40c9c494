"""AR-Diffusion: in training and generation every position has its own time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.core.config import get_setting
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.nn.denoiser import NoiseLevel
from noise2text.recipes.ar_diffusion import PRESETS, ARDiffusionConfig, build, objective
from noise2text.training.objective import DiffusionObjective

from ..conftest import shrunk

COLUMNS = ["iwslt14-de-en", "xsum", "cnn-dailymail"]
RELEASED: dict[str, list[Any]] = {  # typed from the published scripts
    "embedding_dim": [64, 128, 128],
    "ffn_dim": [1024, 2048, 2048],
    "heads": [4, 8, 8],
    "dropout": [0.2] * 3,
    "optim.steps": [135_000, 80_000, 100_000],
    "lr": [2e-3, 8e-4, 8e-4],
    "max_target": [89, 49, 179],  # and the end
    "max_source": [256, 512, 512],
    "warmup": [4_000] * 3,
    "ema_decay": [0.9999] * 3,
    "anchor_distance": [2.0] * 3,
    "generation.steps": [20] * 3,
    "noise_beam": [50] * 3,
}


@pytest.mark.parametrize("row", RELEASED)
def test_presets_are_the_released_scripts(row: str) -> None:
    assert [get_setting(PRESETS[column], row) for column in COLUMNS] == RELEASED[row]


def made(tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, DiffusionObjective]:
    config = shrunk(PRESETS["tiny"], **changes)
    torch.manual_seed(0)
    model = build(config, tokenizer)
    return model, objective(config, model)


def test_training_noises_the_right_more_and_the_network_is_given_its_timesteps(tokenizer: Tokenizer) -> None:
    model, trained = made(tokenizer)
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8, 9]] * 8), RaggedRows.from_lists([[20, 21, 22]] * 8)
    )
    draws = trained.draw(canvas, make_key(0, torch.arange(8)), make_key(0))
    seen: list[tuple[torch.Tensor, NoiseLevel]] = []
    model.denoiser.register_forward_pre_hook(lambda module, given: seen.append((given[0], given[1])))
    trained(canvas, draws)
    z, level = seen[-1]
    assert (level.sigma.diff(dim=1) >= 0).all()
    assert (level.timestep.diff(dim=1) >= 0).all()
    assert (level.timestep[:, -1] > level.timestep[:, 0]).any()
    z0 = model.denoiser.embedding.embed(canvas.tokens) + trained.z0_noise * draws.z0_noise
    assert torch.allclose(z, (level.alpha * z0 + level.sigma * draws.noise).float(), atol=1e-5)


def test_generation_settles_the_left_before_the_right(tokenizer: Tokenizer) -> None:
    """At each step the positions that moved last are the right ones; the first has the least noise left."""
    model, _ = made(tokenizer)
    noise: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, given: noise.append(given[1].sigma[0, :, 0]))
    model.eval().generate(["12. mai 2001"], steps=6)
    levels = torch.stack(noise)  # (steps, positions)
    assert (levels.diff(dim=1) >= 0).all()
    assert (levels.diff(dim=0) <= 0).all()
    halfway = (levels < levels[0] * 0.7).int().argmax(0)  # the step at which each has lost a third
    assert (halfway.diff() >= 0).all()
    assert halfway[0] < halfway[-1]


@pytest.mark.parametrize("self_conditioned", [False, True])
def test_every_parameter_learns(tokenizer: Tokenizer, self_conditioned: bool) -> None:
    model, trained = made(tokenizer)
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8, 9, 10], [12, 13]]), RaggedRows.from_lists([[20, 21], [23, 24, 25]])
    )
    draws = dataclasses.replace(
        trained.draw(canvas, make_key(0, torch.arange(2)), make_key(0)), self_conditioned=self_conditioned
    )
    trained.loss({name: token_loss.total() for name, token_loss in trained(canvas, draws).items()}).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_an_anchor_within_the_canvas_is_refused() -> None:
    with pytest.raises(Problem, match="anchor"):
        ARDiffusionConfig().replace(anchor_distance=0.5)
