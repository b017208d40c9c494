"""CDCD: cross-entropy trains everything; the warp is refitted by the step and travels with the model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text import load
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.core.random import key
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.time_warping import Warped
from noise2text.models import Diffusion
from noise2text.nn.spherical_embeddings import Sphere
from noise2text.recipes.cdcd import PRESETS, CdcdSettings, build, objective
from noise2text.recipes.seqdiffuseq import AdaptiveObjective

from ..conftest import SMALL

SOURCES, TARGETS = [[8, 9, 10, 11], [12, 13]], [[20, 21, 22], [23, 24, 25, 26, 27]]


def made(tokenizer: Tokenizer, **changes: Any) -> tuple[Diffusion, AdaptiveObjective]:
    settings = dataclasses.replace(PRESETS["tiny"], **(SMALL | changes))
    torch.manual_seed(0)
    system = build(settings, tokenizer)
    return system, objective(settings, system)


def test_the_loss_is_the_cross_entropy_of_the_heads_scores(tokenizer: Tokenizer) -> None:
    system, trained = made(tokenizer)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = dataclasses.replace(trained.draw(canvas, key(0, torch.arange(2)), key(0)), guessed=False)
    hidden: list[torch.Tensor] = []
    system.denoiser.out.register_forward_hook(lambda module, given, out: hidden.append(given[0]))  # type: ignore[union-attr]
    tally = trained(canvas, draws)["nll"]
    scores = system.denoiser.out.scores(hidden[-1])  # type: ignore[union-attr,operator]
    expected = torch.nn.functional.cross_entropy(scores.flatten(0, 1), canvas.tokens.flatten())
    assert torch.allclose(tally.total() / tally.mask.sum(), expected)
    assert set(trained.weights) == {"nll"}


@pytest.mark.parametrize("guessed", [False, True])
def test_every_parameter_learns(tokenizer: Tokenizer, guessed: bool) -> None:
    system, trained = made(tokenizer)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = dataclasses.replace(trained.draw(canvas, key(0, torch.arange(2)), key(0)), guessed=guessed)
    trained.loss({name: tally.total() for name, tally in trained(canvas, draws).items()}).backward()
    for name, parameter in system.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_time_is_warped_every_so_many_steps_by_the_losses_of_the_text(tokenizer: Tokenizer) -> None:
    system, trained = made(tokenizer, warp_every=3, warp_least=1, diffusion_steps=40)
    schedule = system.schedule
    assert isinstance(schedule, Warped)
    assert isinstance(system.denoiser.space, Sphere)
    trained.settle(1)
    schedule.observe(torch.arange(1, 41) / 40, torch.arange(40.0)[:, None] ** 2, torch.ones(40, 1) > 0)
    before = schedule.table.clone()
    for step in (2, 3):
        trained.settle(step)
        assert torch.equal(schedule.table, before)
    trained.settle(4)
    assert not torch.equal(schedule.table, before)


def test_the_warp_is_in_the_model_folder(dates: Path, tmp_path: Path) -> None:
    files: dict[str, Any] = {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}
    learns = {"steps": 20, "learning_rate": 1e-2}  # until its losses rise with the noise
    changes = SMALL | learns | {"warp_every": 15, "warp_least": 1, "warp_stride": 4, "diffusion_steps": 40}
    train("cdcd", out=tmp_path / "run", preset="tiny", changes=changes, device="cpu", **files)
    system = load(tmp_path / "run", device="cpu")
    assert isinstance(system, Diffusion)
    fresh = build(PRESETS["tiny"], system.tokenizer).schedule
    t = torch.linspace(0.1, 0.9, 9)
    assert not torch.allclose(system.schedule.alpha_bar(t), fresh.alpha_bar(t), atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"noise_low": 0.0}, "noise_low"),
        ({"noise_low": 500.0}, "noise_low"),
        ({"diffusion_steps": 1990, "warp_stride": 20}, "warp_stride"),
        ({"average": 3}, "average"),
        ({"self_conditioning": 2.0}, "self_conditioning"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        dataclasses.replace(CdcdSettings(), **changes)
