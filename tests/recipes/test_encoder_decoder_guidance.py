"""Encoder-decoders that are trained with source dropout take guidance; the others refuse it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text.commands.train import train
from noise2text.core.config import has_setting
from noise2text.core.errors import Problem
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_free_guidance import ClassifierFreeDenoiser
from noise2text.models import DiffusionModel
from noise2text.models.folder import load
from noise2text.models.registry import find_recipe
from noise2text.training.loop import StepSettings, train_steps
from noise2text.training.source_dropout import SourceDropout

from ..conftest import shrunk, small_changes

RECIPES = ["difformer", "flow", "seqdiffuseq"]
TARGETS = [[20, 21, 22], [23, 24, 25, 26]]
SOURCES, OTHER_SOURCES = [[8, 9, 10], [12, 13, 14, 15]], [[30, 31, 32], [8, 8, 9, 33]]


def make(name: str, tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, Any]:
    """A small model without dropout of its network, and its objective."""
    recipe = find_recipe(name)
    config = shrunk(recipe.preset("tiny"), **{"dropout": 0.0} | changes)
    torch.manual_seed(0)
    model = recipe.build(config, tokenizer)
    return model, recipe.objective(config, model)


def make_attentive(name: str, tokenizer: Tokenizer) -> DiffusionModel:
    """A model for guidance with weights so large that its texts depend on the source."""
    model, _ = make(name, tokenizer, source_dropout=0.3)
    for parameter in model.denoiser.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def write(model: DiffusionModel, text: str, **changes: Any) -> list[str]:
    """Four candidates for a text; their length does not depend on it."""
    if has_setting(model.generation_config, "length"):
        changes["length"] = 8
    return model.generate([text], steps=4, noise_beam=4, **changes).candidates[0]


@pytest.mark.parametrize("name", RECIPES)
def test_without_source_dropout_the_objective_is_the_plain_one_and_guidance_is_refused(
    name: str, tokenizer: Tokenizer
) -> None:
    model, objective = make(name, tokenizer)
    assert not isinstance(objective, SourceDropout)
    with pytest.raises(Problem, match="setting source_dropout above 0, or leave guidance_weight at 0"):
        write(model, "7 april", guidance_weight=0.5)
    with pytest.raises(Problem, match="set source_dropout above 0"):
        make(name, tokenizer, guidance_weight=0.5)


@pytest.mark.parametrize("name", RECIPES)
def test_with_source_dropout_some_sources_are_dropped_and_guidance_changes_the_texts(
    name: str, tokenizer: Tokenizer
) -> None:
    model, objective = make(name, tokenizer, source_dropout=0.3)
    assert isinstance(objective, SourceDropout)
    assert objective.rate == 0.3
    model = make_attentive(name, tokenizer)
    plain = write(model, "7 april")
    assert write(model, "7 april", guidance_weight=0.0) == plain
    assert write(model, "7 april", guidance_weight=2.0) != plain


@pytest.mark.parametrize("name", RECIPES)
@torch.no_grad()
def test_the_guided_estimate_at_weight_0_is_the_unguided_one(name: str, tokenizer: Tokenizer) -> None:
    model = make_attentive(name, tokenizer)
    plain, guided = model.denoiser, ClassifierFreeDenoiser(model.denoiser, model.layout, 0.0)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    z = torch.randn(*canvas.tokens.shape, plain.embedding.dim)
    level = model.schedule(torch.tensor([0.3, 0.7]), z.shape[1])
    estimates = [
        each(z, level, each.encode(canvas.source), each.constrain(canvas), None).z0
        for each in (plain, guided)
    ]
    visible = ~canvas.padding
    torch.testing.assert_close(estimates[1][visible], estimates[0][visible], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", RECIPES)
def test_the_unconditional_texts_do_not_depend_on_the_source(name: str, tokenizer: Tokenizer) -> None:
    """Weight −1 leaves only the estimate without the source; sources of equal length have equal noise."""
    model = make_attentive(name, tokenizer)
    assert write(model, "7 april", guidance_weight=-1.0) == write(model, "12 july", guidance_weight=-1.0)
    assert write(model, "7 april") != write(model, "12 july")


def train_two_steps(
    name: str, tokenizer: Tokenizer, sources: list[list[int]], rate: float
) -> dict[str, torch.Tensor]:
    """The weights after two steps on these sources."""
    model, objective = make(name, tokenizer, source_dropout=rate)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(sources), RaggedRows.from_lists(TARGETS))
    steps = train_steps(
        objective,
        torch.optim.SGD(model.parameters(), lr=0.05),
        lambda step: [canvas],
        first=1,
        last=2,
        settings=StepSettings(peak_lr=0.05, lr_schedule=lambda step: 1.0, clip_norm=1.0, seed=0),
    )
    assert len(list(steps)) == 2
    return model.state_dict()


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_training_that_drops_every_source_learns_nothing_from_the_sources(
    name: str, rate: float, tokenizer: Tokenizer
) -> None:
    trained, other = (train_two_steps(name, tokenizer, sources, rate) for sources in (SOURCES, OTHER_SOURCES))
    assert all(torch.equal(trained[key], other[key]) for key in trained) == (rate == 1.0)


def test_a_trained_folder_takes_guidance(dates: Path, tmp_path: Path) -> None:
    changes = {"optim.steps": 2, "validate_every": 2, "save_every": 2, "source_dropout": 0.5}
    train(
        "difformer",
        out=tmp_path / "run",
        preset="tiny",
        changes=small_changes("difformer", changes),
        device="cpu",
        train=str(dates / "train.jsonl"),
        valid=str(dates / "valid.jsonl"),
    )
    model = load(tmp_path / "run", device="cpu", precision="float32")
    assert isinstance(model, DiffusionModel)
    assert model.source_dropout == 0.5
    assert len(write(model, "7 april", guidance_weight=0.5)) == 4
