"""CDCD: cross-entropy trains everything; the time warp is refitted at set steps and saved with the model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text import load
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.warped_schedule import WarpedSchedule
from noise2text.models import DiffusionModel
from noise2text.nn.spherical_embeddings import SphericalEmbedding
from noise2text.nn.vocabulary_head import VocabularyHead
from noise2text.recipes.cdcd import PRESETS, CDCDConfig, build, objective
from noise2text.training.adaptive_objective import AdaptiveObjective

from ..conftest import SMALL, shrunk

SOURCES, TARGETS = [[8, 9, 10, 11], [12, 13]], [[20, 21, 22], [23, 24, 25, 26, 27]]


def made(tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, AdaptiveObjective]:
    config = shrunk(PRESETS["tiny"], **changes)
    torch.manual_seed(0)
    model = build(config, tokenizer)
    return model, objective(config, model)


def test_the_loss_is_the_cross_entropy_of_the_heads_logits(tokenizer: Tokenizer) -> None:
    model, trained = made(tokenizer)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = dataclasses.replace(
        trained.draw(canvas, make_key(0, torch.arange(2)), make_key(0)), self_conditioned=False
    )
    hidden: list[torch.Tensor] = []
    head = model.denoiser.output_projection
    assert isinstance(head, VocabularyHead)
    head.register_forward_hook(lambda module, given, out: hidden.append(given[0]))
    token_loss = trained(canvas, draws)["nll"]
    expected = torch.nn.functional.cross_entropy(
        head.logits(hidden[-1]).flatten(0, 1), canvas.tokens.flatten()
    )
    assert torch.allclose(token_loss.total() / token_loss.mask.sum(), expected)
    assert set(trained.weights) == {"nll"}


def test_time_is_warped_every_so_many_steps_by_the_losses_of_the_text(tokenizer: Tokenizer) -> None:
    model, trained = made(tokenizer, warp_every=3, warp_min_count=1, num_timesteps=40)
    schedule = model.schedule
    assert isinstance(schedule, WarpedSchedule)
    assert isinstance(model.denoiser.embedding, SphericalEmbedding)
    trained.adapt(1)
    schedule.observe(torch.arange(1, 41) / 40, torch.arange(40.0)[:, None] ** 2, torch.ones(40, 1) > 0)
    before = schedule.alpha_bars.clone()
    for step in (2, 3):
        trained.adapt(step)
        assert torch.equal(schedule.alpha_bars, before)
    trained.adapt(4)
    assert not torch.equal(schedule.alpha_bars, before)


def test_the_warp_is_in_the_model_folder(dates: Path, tmp_path: Path) -> None:
    files: dict[str, Any] = {split: str(dates / f"{split}.jsonl") for split in ("train", "valid")}
    learns = {"optim.steps": 20, "lr": 1e-2}  # until its losses rise with the noise
    changes = (
        SMALL | learns | {"warp_every": 15, "warp_min_count": 1, "warp_bin_size": 4, "num_timesteps": 40}
    )
    train("cdcd", out=tmp_path / "run", preset="tiny", changes=changes, device="cpu", **files)
    model = load(tmp_path / "run", device="cpu")
    assert isinstance(model, DiffusionModel)
    start = build(PRESETS["tiny"], model.tokenizer).schedule
    t = torch.linspace(0.1, 0.9, 9)
    assert not torch.allclose(model.schedule(t, 1).alpha ** 2, start(t, 1).alpha ** 2, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sigma_min": 0.0}, "sigma_min"),
        ({"sigma_min": 500.0}, "sigma_min"),
        ({"num_timesteps": 1990, "warp_bin_size": 20}, "warp_bin_size"),
        ({"average_best": 3}, "average_best must be 1"),
        ({"self_conditioning": 2.0}, "self_conditioning"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        CDCDConfig().replace(changes)
