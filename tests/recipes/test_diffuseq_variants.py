"""The parts of Demirag (2023): other outputs, a schedule by position, and training for guidance."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.layouts.aligned_joint import AlignedJointLayout
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_free_guidance import ClassifierFreeDenoiser
from noise2text.diffusion.parameterization import (
    ParameterizedDenoiser,
    PredictMean,
    PredictNoise,
    PredictScore,
)
from noise2text.diffusion.position_sigmoid_schedule import PositionSigmoid
from noise2text.diffusion.schedules import SignalFloor
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe
from noise2text.recipes.diffuseq import PRESETS, DiffuSeqConfig, build, objective
from noise2text.training.source_dropout import SourceDropout

from ..conftest import SMALL

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26], [28]]
KEYS = make_key(0, torch.arange(3))
CHANGES = {name: value for name, value in SMALL.items() if not name.endswith("coder_layers")} | {
    "layers": 2,
    "max_source": 8,
    "max_target": 6,
}


def config(**changes: Any) -> DiffuSeqConfig:
    return PRESETS["tiny"].replace(CHANGES | changes)


def make(tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, Any]:
    torch.manual_seed(0)
    model = build(config(**changes), tokenizer)
    return model, objective(config(**changes), model)


def losses(model: DiffusionModel, trained: Any) -> dict[str, torch.Tensor]:
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    token_losses = trained(canvas, trained.draw(canvas, KEYS, make_key(0)))
    return {name: token_loss.total() for name, token_loss in token_losses.items()}


def test_a_variant_can_be_aligned(tokenizer: Tokenizer) -> None:
    assert isinstance(make(tokenizer, align_targets=True)[0].layout, AlignedJointLayout)
    assert not isinstance(make(tokenizer)[0].layout, AlignedJointLayout)


@pytest.mark.parametrize(
    ("parameterization", "kind"), [("epsilon", PredictNoise), ("score", PredictScore), ("mean", PredictMean)]
)
def test_an_output_is_converted_weighted_and_kept_from_the_end(
    parameterization: str, kind: type, tokenizer: Tokenizer
) -> None:
    model, trained = make(tokenizer, parameterization=parameterization)
    assert isinstance(model.denoiser, ParameterizedDenoiser)
    assert isinstance(model.denoiser.parameterization, kind)
    end = model.schedule(torch.ones(1, dtype=torch.float64), 1)
    assert (end.alpha**2).item() == pytest.approx(0.0 if parameterization == "mean" else 0.01, abs=1e-9)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = trained.draw(canvas, KEYS, make_key(0))
    level = model.schedule(draws.t, canvas.tokens.shape[1])
    weighted = trained(canvas, draws)["vlb"].values
    plain = make(tokenizer, parameterization=parameterization, loss_weighting="z0")[1](canvas, draws)[
        "vlb"
    ].values
    factor = model.denoiser.parameterization.weight(level)[..., 0].float()
    assert torch.allclose(weighted, factor * plain, rtol=1e-4)


@pytest.mark.parametrize("parameterization", ["epsilon", "score"])
def test_a_residual_network_leaves_out_what_noise_alone_says(
    parameterization: str, tokenizer: Tokenizer
) -> None:
    """With the same weights, its output is the plain one less z over F, or plus z over F² for the score."""
    models = [
        make(tokenizer, parameterization=name, noise_factor=4.0)[0]
        for name in (parameterization, f"residual-{parameterization}")
    ]
    plain, residual = (model.denoiser for model in models)
    assert isinstance(plain, ParameterizedDenoiser)
    assert isinstance(residual, ParameterizedDenoiser)
    level = models[0].schedule(torch.tensor([0.7], dtype=torch.float64), 1)
    output, z = torch.randn(2, 1, 3, 16, dtype=torch.float64)
    share = 1 / 4 if parameterization == "epsilon" else -1 / 16
    expected = plain.parameterization.to_z0(output + share * z, z, level)
    assert torch.allclose(residual.parameterization.to_z0(output, z, level), expected)


def test_the_score_can_be_weighted_as_the_noise(tokenizer: Tokenizer) -> None:
    """Score matching's own loss times σ² is the loss of ε."""
    model, trained = make(tokenizer, parameterization="score")
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = trained.draw(canvas, KEYS, make_key(0))
    sigma = model.schedule(draws.t, 1).sigma[..., 0].float()
    noise = make(tokenizer, parameterization="score", loss_weighting="noise")[1](canvas, draws)["vlb"].values
    assert torch.allclose(noise, sigma**2 * trained(canvas, draws)["vlb"].values, rtol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"parameterization": "epsilon"},
        {"parameterization": "score"},
        {"parameterization": "mean"},
        {"parameterization": "residual-epsilon", "noise_factor": 4.0},
        {"parameterization": "velocity"},
        {"schedule": "position-sigmoid"},
        {"source_dropout": 0.5},
        {
            "schedule": "position-sigmoid",
            "parameterization": "score",
            "source_dropout": 0.5,
        },  # Demirag's fifth model
    ],
)
def test_every_parameter_gets_a_gradient(changes: dict[str, Any], tokenizer: Tokenizer) -> None:
    model, trained = make(tokenizer, **changes)
    trained.loss(losses(model, trained)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    assert len(model.generate(["7 april"], steps=3).texts) == 1


def test_a_schedule_by_position_has_aligned_targets(tokenizer: Tokenizer) -> None:
    model, trained = make(tokenizer, schedule="position-sigmoid")
    assert trained.z0_noise == pytest.approx(0.02**0.5)
    assert isinstance(model.layout, AlignedJointLayout)
    assert isinstance(model.schedule, PositionSigmoid)
    assert model.schedule.target_start == model.layout.target_start
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert model.schedule.positions == canvas.scored[0].sum()
    floored = make(tokenizer, schedule="position-sigmoid", parameterization="epsilon")[0].schedule
    assert isinstance(floored, SignalFloor)
    assert isinstance(floored.schedule, PositionSigmoid)


@pytest.mark.parametrize("schedule", ["sqrt", "position-sigmoid"])
def test_the_prior_knows_what_a_floor_leaves(schedule: str, tokenizer: Tokenizer) -> None:
    prior = make(tokenizer, schedule=schedule, min_alpha_bar=0.05)[1].terms["prior"]
    assert prior.final_alpha == pytest.approx(0.05**0.5, rel=1e-4)
    assert make(tokenizer, schedule=schedule)[1].terms["prior"].final_alpha < 0.01


def test_the_mean_is_not_rounded_unless_it_is_asked_for(tokenizer: Tokenizer) -> None:
    asked = ("auto", "bfloat16", "float32", "int8")
    mean, plain = (
        make(tokenizer, parameterization=parameterization)[0] for parameterization in ("mean", "score")
    )
    assert [mean.resolve_precision(name) for name in asked] == ["float32", *asked[1:]]
    assert [plain.resolve_precision(name) for name in asked] == [*asked]


def test_guidance_is_trained_for_and_refused_elsewhere(tokenizer: Tokenizer) -> None:
    model, trained = make(tokenizer, source_dropout=0.3, guidance_weight=0.5)
    assert isinstance(trained, SourceDropout)
    assert trained.rate == 0.3
    assert model.generation_config.guidance_weight == 0.5
    config = dataclasses.replace(model.generation_config, clamp=False)
    assert isinstance(model.wrap_denoiser(config, model.schedule), ClassifierFreeDenoiser)
    with pytest.raises(Problem, match="guidance_weight"):
        make(tokenizer)[0].generate(["7 april"], guidance_weight=0.5)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("diffuseq-epsilon", {"parameterization": "epsilon"}),
        ("diffuseq-score", {"parameterization": "score"}),
        ("diffuseq-mean", {"parameterization": "mean"}),
        ("diffuseq-guided", {"source_dropout": 0.1, "guidance_weight": 0.5}),
        ("diffuseq-position-sigmoid", {"schedule": "position-sigmoid", "source_dropout": 0.5}),
    ],
)
def test_the_preset_of_the_thesis_is_diffuseq_s_but_for_its_part(name: str, part: dict[str, Any]) -> None:
    preset, plain = find_recipe(name).preset("covost-de-en"), PRESETS["covost-de-en"]
    assert preset == plain.replace(part)
    assert preset != plain


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"parameterization": "speed"}, "parameterization"),
        ({"loss_weighting": "heavy"}, "loss_weighting"),
        ({"schedule": "left"}, "schedule"),
        ({"source_dropout": 1.5}, "source_dropout"),
        ({"source_dropout": 0.5, "guidance_weight": -2.0}, "guidance_weight"),
        ({"guidance_weight": 0.5}, "source_dropout above 0"),
        ({"parameterization": "epsilon", "min_alpha_bar": 0.0}, "min_alpha_bar"),
        ({"min_alpha_bar": 1.0}, "min_alpha_bar"),
        ({"parameterization": "mean", "schedule": "position-sigmoid"}, "parameterization=mean"),
        ({"parameterization": "mean", "min_alpha_bar": 0.01}, "parameterization=mean"),
        ({"parameterization": "mean", "noise_factor": 2.0}, "parameterization=mean"),
        (
            {"parameterization": "mean", "precision": "bfloat16"},
            "parameterization=mean takes no precision=bfloat16",
        ),
        ({"parameterization": "mean", "num_timesteps": 12_000}, "so few num_timesteps"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        config(**changes)
