"""Laws of every diffusion model: given tokens never change, and padding changes nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.solvers import strided_times
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe
from noise2text.nn.separate_source_transformer import SeparateSourceTransformer
from noise2text.training.objective import DiffusionObjective
from noise2text.training.source_dropout import SourceDropout

from ..conftest import DIFFUSION, NO_DIFFUSION, shrunk

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28, 29]]


def build_small(name: str, tokenizer: Tokenizer) -> tuple[DiffusionModel, DiffusionObjective]:
    """A small untrained diffusion model and its objective."""
    recipe = find_recipe(name)
    config = shrunk(recipe.preset("tiny"))
    torch.manual_seed(0)
    model = recipe.build(config, tokenizer).eval()
    assert isinstance(model, DiffusionModel)
    objective = recipe.objective(config, model)
    objective = objective.objective if isinstance(objective, SourceDropout) else objective
    assert isinstance(objective, DiffusionObjective)
    return model, objective


def test_every_recipe_is_a_diffusion_model_or_is_listed_with_the_reason(tokenizer: Tokenizer) -> None:
    for name, reason in NO_DIFFUSION.items():
        recipe = find_recipe(name)
        with torch.device("meta"):
            assert not isinstance(recipe.build(recipe.preset("tiny"), tokenizer), DiffusionModel), reason


def embedded(model: DiffusionModel, canvas: Canvas) -> torch.Tensor:
    """Every token's embedding; where the source has its own, they end with the separator."""
    own, tokens = model.denoiser.embedding.embed(canvas.tokens), canvas.tokens
    if not isinstance(model.denoiser, SeparateSourceTransformer):
        return own
    separates = tokens == model.tokenizer.sep
    source = (separates.cumsum(1) == 0) | separates
    return torch.where(source[..., None], model.denoiser.source_embedding.embed(tokens), own)


@pytest.mark.parametrize("self_conditioned", [False, True])
@pytest.mark.parametrize("name", DIFFUSION)
def test_in_training_what_is_given_is_not_noised(
    name: str, self_conditioned: bool, tokenizer: Tokenizer
) -> None:
    model, objective = build_small(name, tokenizer)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    start = canvas.given.int().sum(1, keepdim=True)  # what the layout gives comes first
    place = torch.arange(canvas.tokens.shape[1])
    canvas = dataclasses.replace(canvas, given=place < start + 2)
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    draws = dataclasses.replace(draws, t=torch.tensor([0.3, 0.6, 1.0]), self_conditioned=self_conditioned)
    seen: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    objective(canvas, draws)
    z0 = embedded(model, canvas) + objective.z0_noise * draws.z0_noise
    assert len(seen) == 1 + self_conditioned
    for z_t in seen:
        assert torch.equal(z_t[canvas.given], z0[canvas.given])
        assert not torch.isclose(z_t[~canvas.given], z0[~canvas.given], atol=1e-4).all(-1).any()


@pytest.mark.parametrize("name", DIFFUSION)
def test_in_sampling_what_is_given_is_its_embedding_at_every_step(name: str, tokenizer: Tokenizer) -> None:
    model, _ = build_small(name, tokenizer)
    source = model.layout.make_source(RaggedRows.from_lists(SOURCES))
    wished = torch.tensor([[5, 6], [7, 5], [5, 5]])
    empty = model.layout.make_empty_canvas(source, wished, width=7)
    canvas = model.layout.apply_template(empty, Template(((20, 21), ()), (None,)))
    assert (canvas.given & ~empty.given).sum(1).tolist() == [2] * 6
    schedule = model.build_sampling_schedule(model.generation_config)
    denoiser = model.wrap_denoiser(model.generation_config, schedule)
    constraint, keys = denoiser.constrain(canvas), make_key(0, torch.arange(6))
    given, steps = embedded(model, canvas)[canvas.given], list[SampledStep]()
    with torch.no_grad():
        times = strided_times(5, num_timesteps=model.schedule.num_timesteps)
        sample(
            ReverseProcess(denoiser, schedule, denoiser.encode(source), constraint, keys, times), steps.append
        )
    assert len(steps) == 5
    for step in steps:
        assert torch.equal(step.z[canvas.given], given)
        assert torch.equal(step.estimate.z0[canvas.given], given)


@pytest.mark.parametrize("self_conditioned", [False, True])
@pytest.mark.parametrize("name", DIFFUSION)
def test_every_parameter_learns(name: str, self_conditioned: bool, tokenizer: Tokenizer) -> None:
    model, objective = build_small(name, tokenizer)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    losses = objective(canvas, dataclasses.replace(draws, self_conditioned=self_conditioned))
    objective.loss({name: token_loss.total() for name, token_loss in losses.items()}).backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("name", DIFFUSION)
def test_padding_changes_no_term_of_the_loss(name: str, tokenizer: Tokenizer) -> None:
    """A canvas that is always full has no padding to change: what it fills up with are tokens."""
    model, objective = build_small(name, tokenizer)
    keys, step = make_key(0, torch.arange(3)), make_key(5)

    def totals(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
        canvas = model.layout.make_canvas(
            RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS), shape=shape
        )
        token_losses = objective(canvas, objective.draw(canvas, keys, step))
        return {name: token_loss.total() for name, token_loss in token_losses.items()}

    tight, wide = totals((0, 0)), totals((12, 11))
    for term, value in tight.items():
        assert torch.allclose(value, wide[term], rtol=1e-5), term


@pytest.mark.parametrize("name", DIFFUSION)
def test_padding_changes_no_text(name: str, tokenizer: Tokenizer) -> None:
    """A short text beside a long one, and alone."""
    model, _ = build_small(name, tokenizer)
    options: dict[str, Any] = {"steps": 3, "stop_early": 0, "seed": 1, "clamp": False}
    texts = ["mai", "sunday, 7 april 1957, in the evening"]
    together = model.generate(texts, batch=2, **options)
    alone = model.generate(texts[:1], **options)
    assert together.candidates[0] == alone.candidates[0]
    assert together.scores[0] == pytest.approx(alone.scores[0], abs=1e-4)


@pytest.mark.parametrize("name", DIFFUSION)
def test_generation_can_have_more_noise(name: str, tokenizer: Tokenizer) -> None:
    """The first canvas is noise, multiplied by `sampling_noise_factor`."""
    model, _ = build_small(name, tokenizer)
    seen: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    first = []
    for factor in (1, 4):
        seen.clear()
        model.generate(
            ["7 april 1957"], steps=2, stop_early=0, clamp=False, seed=1, sampling_noise_factor=factor
        )
        first.append(seen[0][0, -1])  # the last position of a canvas is never given
    assert torch.allclose(first[1], 4 * first[0])
    assert first[0].abs().max() > 0
