"""DiNoiSer: training noise is clipped as the embeddings move; generation exaggerates the noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.core.config import change
from noise2text.core.errors import Problem
from noise2text.core.random import key
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.noise_clipping import neighbour_distance
from noise2text.nn.denoiser import Level
from noise2text.recipes.dinoiser import (
    PRESETS,
    ClippedObjective,
    Dinoiser,
    DinoiserSettings,
    build,
    objective,
)

from ..conftest import SMALL

COLUMNS = ["iwslt14-de-en", "wmt14-en-de", "wmt16-en-ro"]
RELEASED: dict[str, list[Any]] = {  # typed from the published scripts
    "embedding": [16, 64, 64],
    "ffn": [1024, 2048, 2048],
    "heads": [4, 8, 8],
    "width": [512] * 3,
    "dropout": [0.2, 0.1, 0.05],
    "tokens": [32_768, 131_072, 131_072],
    "learning_rate": [5e-4] * 3,
    "warmup": [4_000] * 3,
    "clip_margin": [0.0, 1.0, 0.0],
    "generation_steps": [20] * 3,
    "told": [0.99] * 3,
}


@pytest.mark.parametrize("row", RELEASED)
def test_presets_are_the_released_scripts(row: str) -> None:
    assert [getattr(PRESETS[column], row) for column in COLUMNS] == RELEASED[row]


def made(tokenizer: Tokenizer, **changes: Any) -> tuple[Dinoiser, ClippedObjective]:
    settings = dataclasses.replace(PRESETS["tiny"], **(SMALL | changes))
    torch.manual_seed(0)
    system = build(settings, tokenizer)
    return system, objective(settings, system)


def lowest_ratio(system: Dinoiser, trained: ClippedObjective) -> float:
    """The least noise-to-signal ratio of 4,096 training rows."""
    t, _ = trained.times(torch.linspace(0, 1 - 1e-9, 4096, dtype=torch.float64))
    level: Level = system.schedule(t, 1)
    return float((1 / level.snr).min())


def test_training_is_clipped_from_the_first_step_and_follows_the_embeddings(tokenizer: Tokenizer) -> None:
    system, trained = made(tokenizer, clip_every=3)
    space = system.denoiser.space
    assert lowest_ratio(system, trained) >= neighbour_distance(space.embeddings) / space.dim
    first = lowest_ratio(system, trained)
    with torch.no_grad():
        space.table.copy_(space.table[:1] + 0.3 * space.table)  # closer together
    for step, follows in ((1, False), (2, False), (3, True)):
        trained.settle(step)
        assert (lowest_ratio(system, trained) < first) == follows


def test_the_clip_is_kept_for_a_resumed_run(tokenizer: Tokenizer) -> None:
    _, trained = made(tokenizer)
    assert "times.least" in dict(trained.named_buffers())


def test_the_network_is_told_of_much_noise_and_the_canvas_follows_the_true_one(tokenizer: Tokenizer) -> None:
    system, _ = made(tokenizer)
    told: list[torch.Tensor] = []
    system.denoiser.register_forward_pre_hook(lambda module, inputs: told.append(inputs[1].clock))
    system.eval().generate(["12. mai 2001"], steps=5)
    assert all((clock >= 0.99).all() for clock in told)
    assert len(told) == 5
    honest = system.down(change(system.how, {"told": 0.0}, where="test"))
    t = torch.tensor([0.2, 0.7])
    down: Level = system.down(system.how)(t, 3)
    assert torch.equal(down.sigma, honest(t, 3).sigma)
    assert torch.equal(honest(t, 3).clock, system.schedule(t, 3).clock)


def test_a_sampler_without_fresh_noise_is_decided_by_its_first(tokenizer: Tokenizer) -> None:
    system, _ = made(tokenizer)
    assert system.how.eta == 0
    assert system.how.stop_early == 0


@pytest.mark.parametrize("guessed", [False, True])
def test_every_parameter_learns(tokenizer: Tokenizer, guessed: bool) -> None:
    system, trained = made(tokenizer)
    canvas = system.layout.canvas(Rows.of([[8, 9, 10], [12, 13]]), Rows.of([[20, 21], [23, 24, 25]]))
    draws = dataclasses.replace(trained.draw(canvas, key(0, torch.arange(2)), key(0)), guessed=guessed)
    trained.loss({name: tally.total() for name, tally in trained(canvas, draws).items()}).backward()
    for name, parameter in system.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"told": 1.5}, "told"), ({"clip_every": 0}, "clip_every"), ({"clip_margin": -1.0}, "clip_margin")],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        dataclasses.replace(DinoiserSettings(), **changes)
