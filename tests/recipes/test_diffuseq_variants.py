"""Each variant is DiffuSeq but for its own part; with none of the parts it is DiffuSeq."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.core.random import key
from noise2text.data.layouts.joint_aligned import Fixed
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_free_guidance import Guided
from noise2text.diffusion.parameterization import Floored, Mean, Noise, Reading, Score
from noise2text.diffusion.position_sigmoid import Staggered
from noise2text.models import Diffusion
from noise2text.models.registry import find_recipe
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq_variants import VariantSettings, build, objective
from noise2text.training.source_dropout import Dropping

from ..conftest import SMALL

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26], [28]]
KEYS = key(0, torch.arange(3))
CHANGES = {name: value for name, value in SMALL.items() if not name.endswith("coder_layers")} | {
    "layers": 2,
    "max_source": 8,
    "max_target": 6,
}
TINY = {
    field.name: getattr(diffuseq.PRESETS["tiny"], field.name)
    for field in dataclasses.fields(diffuseq.DiffuseqSettings)
}


def settings(**changes: Any) -> VariantSettings:
    return VariantSettings(**(TINY | CHANGES | changes))


def make(tokenizer: Tokenizer, **changes: Any) -> tuple[Diffusion, Any]:
    torch.manual_seed(0)
    system = build(settings(**changes), tokenizer)
    return system, objective(settings(**changes), system)


def losses(system: Diffusion, trained: Any) -> dict[str, torch.Tensor]:
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    tallies = trained(canvas, trained.draw(canvas, KEYS, key(0)))
    return {name: tally.total() for name, tally in tallies.items()}


def test_without_a_variant_it_is_diffuseq(tokenizer: Tokenizer) -> None:
    system, trained = make(tokenizer)
    plain_settings = dataclasses.replace(diffuseq.PRESETS["tiny"], **CHANGES)
    torch.manual_seed(0)
    plain = diffuseq.build(plain_settings, tokenizer)
    assert plain.state_dict().keys() == system.state_dict().keys()
    expected = losses(plain, diffuseq.objective(plain_settings, plain))
    made = losses(system, trained)
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], expected[name]) for name in made)
    texts = ["7 april", "12. mai"]
    assert system.generate(texts, steps=4).texts == plain.generate(texts, steps=4).texts


def test_a_variant_can_be_aligned(tokenizer: Tokenizer) -> None:
    assert isinstance(make(tokenizer, aligned=True)[0].layout, Fixed)
    assert not isinstance(make(tokenizer)[0].layout, Fixed)


@pytest.mark.parametrize(("predict", "head"), [("epsilon", Noise), ("score", Score), ("mean", Mean)])
def test_an_output_is_read_weighed_and_kept_from_the_end(
    predict: str, head: type, tokenizer: Tokenizer
) -> None:
    system, trained = make(tokenizer, predict=predict)
    assert isinstance(system.denoiser, Reading)
    assert isinstance(system.denoiser.head, head)
    end = system.schedule(torch.ones(1, dtype=torch.float64), 1)
    assert (end.alpha**2).item() == pytest.approx(0.0 if predict == "mean" else 0.01, abs=1e-9)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = trained.draw(canvas, KEYS, key(0))
    level = system.schedule(draws.t, canvas.tokens.shape[1])
    weighed = trained(canvas, draws)["vlb"].value
    plain = make(tokenizer, predict=predict, weigh="z0")[1](canvas, draws)["vlb"].value
    factor = system.denoiser.head.weight(level)[..., 0].float()
    assert torch.allclose(weighed, factor * plain, rtol=1e-4)


@pytest.mark.parametrize("predict", ["epsilon", "score"])
def test_a_skip_adds_what_is_mostly_the_answer(predict: str, tokenizer: Tokenizer) -> None:
    """Of the same weights, the answer with a skip is the one without, and z over F or over F² beside it."""
    systems = [make(tokenizer, predict=predict, factor=4.0, skip=skip)[0] for skip in (False, True)]
    plain, skipped = (system.denoiser for system in systems)
    assert isinstance(plain, Reading)
    assert isinstance(skipped, Reading)
    level = systems[0].schedule(torch.tensor([0.7], dtype=torch.float64), 1)
    output, z = torch.randn(2, 1, 3, 16, dtype=torch.float64)
    alone = 1 / 4 if predict == "epsilon" else -1 / 16
    expected = plain.head.clean(output + alone * z, z, level)
    assert torch.allclose(skipped.head.clean(output, z, level), expected)


def test_the_score_can_be_weighed_as_the_noise(tokenizer: Tokenizer) -> None:
    """Score matching's own loss times σ² is the loss of ε."""
    system, trained = make(tokenizer, predict="score")
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = trained.draw(canvas, KEYS, key(0))
    sigma = system.schedule(draws.t, 1).sigma[..., 0].float()
    noise = make(tokenizer, predict="score", weigh="noise")[1](canvas, draws)["vlb"].value
    assert torch.allclose(noise, sigma**2 * trained(canvas, draws)["vlb"].value, rtol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"predict": "epsilon"},
        {"predict": "score"},
        {"predict": "mean"},
        {"predict": "epsilon", "factor": 4.0, "skip": True},
        {"order": "staggered"},
        {"unconditional": 0.5},
        {"order": "staggered", "predict": "score", "unconditional": 0.5},  # the thesis's fifth model
    ],
)
def test_every_parameter_gets_a_gradient(changes: dict[str, Any], tokenizer: Tokenizer) -> None:
    system, trained = make(tokenizer, **changes)
    trained.loss(losses(system, trained)).backward()
    for name, parameter in system.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    assert len(system.generate(["7 april"], steps=3).texts) == 1


def test_staggered_noise_has_fixed_places(tokenizer: Tokenizer) -> None:
    system, trained = make(tokenizer, order="staggered")
    assert trained.blur == pytest.approx(0.02**0.5)
    assert isinstance(system.layout, Fixed)
    assert isinstance(system.schedule, Staggered)
    assert system.schedule.first == system.layout.first
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    assert system.schedule.positions == canvas.scored[0].sum()
    floored = make(tokenizer, order="staggered", predict="epsilon")[0].schedule
    assert isinstance(floored, Floored)
    assert isinstance(floored.schedule, Staggered)


@pytest.mark.parametrize("order", ["together", "staggered"])
def test_the_prior_knows_what_a_floor_leaves(order: str, tokenizer: Tokenizer) -> None:
    prior = make(tokenizer, order=order, least_signal=0.05)[1].terms["prior"]
    assert prior.remains == pytest.approx(0.05**0.5, rel=1e-4)
    assert make(tokenizer, order=order)[1].terms["prior"].remains < 0.01


def test_the_mean_is_not_rounded_unless_it_is_asked_for(tokenizer: Tokenizer) -> None:
    asked = ("auto", "bfloat16", "float32", "int8")
    mean, plain = (make(tokenizer, predict=predict)[0] for predict in ("mean", "score"))
    assert [mean.precision(name) for name in asked] == ["float32", *asked[1:]]
    assert [plain.precision(name) for name in asked] == [*asked]


def test_guidance_is_trained_for_and_refused_elsewhere(tokenizer: Tokenizer) -> None:
    system, trained = make(tokenizer, unconditional=0.3, guidance=0.5)
    assert isinstance(trained, Dropping)
    assert trained.rate == 0.3
    assert system.how.guidance == 0.5
    assert isinstance(system.guided(dataclasses.replace(system.how, clamp=False)), Guided)
    with pytest.raises(Problem, match="no setting 'guidance'"):
        make(tokenizer)[0].generate(["7 april"], guidance=0.5)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("diffuseq-epsilon", {"predict": "epsilon", "order": "together", "unconditional": 0.0}),
        ("diffuseq-score", {"predict": "score", "order": "together", "unconditional": 0.0}),
        ("diffuseq-mean", {"predict": "mean", "order": "together", "unconditional": 0.0}),
        ("diffuseq-guided", {"predict": "z0", "order": "together", "unconditional": 0.1}),
        ("diffuseq-staggered", {"predict": "z0", "order": "staggered", "unconditional": 0.5}),
    ],
)
def test_the_preset_of_the_thesis_is_diffuseq_s_but_for_its_part(name: str, part: dict[str, Any]) -> None:
    preset, plain = find_recipe(name).settings("covost-de-en"), diffuseq.PRESETS["covost-de-en"]
    assert {field: getattr(preset, field) for field in part} == part
    assert all(getattr(preset, field) == getattr(plain, field) for field in TINY)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"predict": "velocity"}, "predict"),
        ({"weigh": "heavy"}, "weigh"),
        ({"order": "left"}, "order"),
        ({"unconditional": 1.5}, "unconditional"),
        ({"unconditional": 0.5, "guidance": -2.0}, "guidance"),
        ({"guidance": 0.5}, "unconditional above 0"),
        ({"predict": "epsilon", "least_signal": 0.0}, "least_signal"),
        ({"least_signal": 1.0}, "least_signal"),
        ({"predict": "mean", "order": "staggered"}, "predict=mean"),
        ({"predict": "mean", "least_signal": 0.01}, "predict=mean"),
        ({"predict": "mean", "factor": 2.0}, "predict=mean"),
        ({"predict": "mean", "precision": "bfloat16"}, "predict=mean takes no precision=bfloat16"),
        ({"predict": "mean", "diffusion_steps": 12_000}, "fewer diffusion_steps than 12,000"),
        ({"order": "staggered", "schedule": "cosine"}, "schedule is not for order=staggered"),
        ({"skip": True}, "skip is for predict=epsilon"),
        ({"predict": "mean", "skip": True}, "skip is for predict=epsilon"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        settings(**changes)
