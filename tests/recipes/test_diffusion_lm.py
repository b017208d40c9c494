"""Diffusion-LM learns whole pairs with nothing given; the source is held in sampling alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.diffusion.noise import key
from noise2text.diffusion.times import Uniform
from noise2text.diffusion.walk import strided, walk
from noise2text.recipes import RECIPES
from noise2text.recipes.diffusion_lm import PRESETS
from noise2text.system import Diffusion
from noise2text.text.rows import Rows
from noise2text.text.tokenizer import Tokenizer
from noise2text.training.objective import DiffusionObjective

SOURCES, TARGETS = [[8, 9, 10, 11], [12, 13]], [[20, 21, 22], [23, 24, 25, 26, 27]]
THESIS_4_1_2 = {  # typed from its list, and from table 4.4
    "embedding": 256,
    "diffusion_steps": 4000,
    "generation_steps": 4000,
    "schedule": "sqrt",
    "clip": 0.0,
    "clamp": True,
    "steps": 600_000,
    "vocabulary": 30_000,
    "width": 768,
    "layers": 12,
    "heads": 12,
}


def make(tokenizer: Tokenizer) -> tuple[Diffusion, DiffusionObjective]:
    torch.manual_seed(0)
    small: dict[str, Any] = {"width": 32, "ffn": 64, "heads": 2, "layers": 2, "embedding": 8}
    settings = dataclasses.replace(PRESETS["tiny"], max_source=8, max_target=6, **small)
    system = RECIPES["diffusion-lm"].build(settings, tokenizer)
    return system, RECIPES["diffusion-lm"].objective(settings, system)


@pytest.mark.parametrize("row", THESIS_4_1_2)
def test_the_preset_is_the_thesis(row: str) -> None:
    assert getattr(PRESETS["covost-de-en"], row) == THESIS_4_1_2[row]


def test_a_canvas_has_64_positions_and_a_step_128_pairs(tokenizer: Tokenizer) -> None:
    preset = PRESETS["covost-de-en"]
    with torch.device("meta"):
        assert RECIPES["diffusion-lm"].build(preset, tokenizer).layout.width == 64
    assert preset.accumulate * (preset.tokens // max(preset.max_source, preset.max_target)) == 128


def test_in_training_the_whole_canvas_is_noised_and_counted(tokenizer: Tokenizer) -> None:
    system, objective = make(tokenizer)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = objective.draw(canvas, key(0, torch.arange(2)), key(0))
    seen: list[torch.Tensor] = []
    system.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    tallies = objective(canvas, draws)
    z0 = system.denoiser.space.embed(canvas.tokens) + objective.blur * draws.blur
    level = system.schedule(draws.t, canvas.tokens.shape[1])
    assert torch.allclose(seen[0], (level.alpha * z0 + level.sigma * draws.noise).float(), atol=1e-5)
    assert all(tally.mask.all() for tally in tallies.values())
    assert isinstance(objective.times, Uniform)


def test_in_sampling_the_source_is_filled_in_at_every_step(tokenizer: Tokenizer) -> None:
    system = make(tokenizer)[0].eval()
    source = system.layout.source(Rows.of(SOURCES))
    canvas = system.layout.prompt(source, torch.ones(2, 1), width=0)
    held, times = system.denoiser.hold(canvas), strided(4, resolution=200)
    with torch.no_grad():
        for state in walk(
            system.denoiser, system.schedule, system.denoiser.read(source), held, key(torch.arange(2)), times
        ):
            assert canvas.frozen.sum(1).tolist() == [6, 4]
            assert torch.equal(state.z[canvas.frozen], held.given[canvas.frozen])
