"""Boundary-conditional noise: it begins where a token and its tightest rival are equally likely."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.boundary_conditional import (
    BoundaryConditional,
    BoundarySampler,
    boundary_ratio,
    time_at_ratio,
)
from noise2text.diffusion.sampler import ReverseProcess, sample
from noise2text.diffusion.schedules import SCHEDULES, Rescaled, Schedule, VariancePreserving
from noise2text.diffusion.solvers import Ddim, Solver, strided_times
from noise2text.diffusion.token_speeds import TokenSpeeds
from noise2text.models import LengthPredictingModel
from noise2text.models.registry import find_recipe
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.recipes.flow import RectifiedFlow

from ..conftest import Make

ALL = [
    *(make(2000) for make in SCHEDULES.values()),
    Rescaled(SCHEDULES["sqrt"](2000), 4.0),
    VariancePreserving(Rescaled(SCHEDULES["cosine"](2000), 3.0)),
    RectifiedFlow(2000),
]
T = torch.tensor([0.0005, 0.1, 0.3, 0.5, 0.8, 1.0])


@pytest.fixture
def parts() -> tuple[TokenEmbedding, Tensor, Tensor, Tensor]:
    """Embeddings of 50 tokens, a canvas of six rows, its z₀ and its noise."""
    torch.manual_seed(0)
    embedding = TokenEmbedding(50, 32).double().requires_grad_(False)
    tokens = torch.randint(50, (6, 40))
    return embedding, tokens, embedding.embed(tokens), torch.randn(6, 40, 32, dtype=torch.float64)


def is_decodable(embedding: TokenEmbedding, z: Tensor, tokens: Tensor) -> Tensor:
    return embedding.logits(z).argmax(-1) == tokens


@pytest.mark.parametrize("schedule", ALL)
def test_a_ratio_is_that_of_the_time_it_is_inverted_to(schedule: Schedule) -> None:
    ratio = torch.tensor([0.2, 0.5, 1.0, 3.0, 20.0], dtype=torch.float64)
    level = schedule(time_at_ratio(schedule, ratio), 1)
    assert torch.allclose((level.sigma / level.alpha).flatten(), ratio, rtol=1e-4)
    ends = time_at_ratio(schedule, torch.tensor([0.0, torch.inf], dtype=torch.float64))
    assert ends.tolist() == pytest.approx([0, 1], abs=2e-4)  # sqrt is pure noise just before time 1


@pytest.mark.parametrize("schedule", ALL)
def test_confidence_0_is_ordinary_diffusion_bit_for_bit(
    schedule: Schedule, parts: tuple[TokenEmbedding, Tensor, Tensor, Tensor]
) -> None:
    embedding, tokens, z0, noise = parts
    plain = schedule(T, z0.shape[1])
    level = BoundaryConditional(schedule, embedding, 0.0)(T, tokens, z0, noise)
    assert torch.equal(level.add_noise(z0, noise), plain.add_noise(z0, noise))
    assert torch.equal(level.timestep, plain.timestep)


@pytest.mark.parametrize("schedule", ALL)
def test_at_the_boundary_the_token_and_its_tightest_rival_are_equally_likely(
    schedule: Schedule, parts: tuple[TokenEmbedding, Tensor, Tensor, Tensor]
) -> None:
    embedding, tokens, z0, noise = parts
    level = BoundaryConditional(schedule, embedding, 1.0)(torch.zeros(6), tokens, z0, noise)
    has_boundary = is_decodable(embedding, z0, tokens) & ~is_decodable(embedding, noise, tokens)
    assert has_boundary.sum() > 150
    best, second = embedding.logits(level.add_noise(z0, noise)).topk(2).values.unbind(-1)
    assert torch.allclose(best[has_boundary], second[has_boundary], atol=1e-4)
    own = embedding.logits(level.add_noise(z0, noise)).gather(-1, tokens[..., None])[..., 0]
    assert torch.allclose(own[has_boundary], best[has_boundary], atol=1e-4)


def test_a_token_is_decodable_before_its_boundary_and_not_after(
    parts: tuple[TokenEmbedding, Tensor, Tensor, Tensor],
) -> None:
    embedding, tokens, z0, noise = parts
    ratio = boundary_ratio(embedding, tokens, z0, noise)
    inside = ratio.isfinite() & (ratio > 0)
    before, after = (z0 + factor * ratio.nan_to_num(0, 0, 0)[..., None] * noise for factor in (0.999, 1.001))
    assert is_decodable(embedding, before, tokens)[inside].all()
    assert not is_decodable(embedding, after, tokens)[inside].any()
    assert (ratio == 0)[~is_decodable(embedding, z0, tokens)].all()
    assert ratio.isinf()[is_decodable(embedding, noise, tokens) & is_decodable(embedding, z0, tokens)].all()


@pytest.mark.parametrize("schedule", ALL)
def test_full_confidence_leaves_no_token_to_be_read_off_the_canvas(
    schedule: Schedule, parts: tuple[TokenEmbedding, Tensor, Tensor, Tensor]
) -> None:
    embedding, tokens, z0, noise = parts
    pulled = ~is_decodable(embedding, noise, tokens)  # elsewhere even pure noise decodes to the token
    level = BoundaryConditional(schedule, embedding, 1.0)(T, tokens, z0, noise)
    later = BoundaryConditional(schedule, embedding, 1.0)(T + 0.002, tokens, z0, noise)
    assert not is_decodable(embedding, later.add_noise(z0, noise), tokens)[pulled][: 40 * 5].any()
    assert is_decodable(embedding, schedule(T, 40).add_noise(z0, noise), tokens)[pulled].any()
    assert (level.sigma >= schedule(T, 40).sigma - 1e-9).all()


@pytest.mark.parametrize("confidence", [0.0, 0.5, 1.0])
def test_times_rise_with_t_to_pure_noise_and_with_the_confidence(
    confidence: float, parts: tuple[TokenEmbedding, Tensor, Tensor, Tensor]
) -> None:
    embedding = parts[0]
    tokens, z0, noise = (part[:1] for part in parts[1:])
    boundary = BoundaryConditional(ALL[0], embedding, confidence)
    times = torch.cat([boundary.times(t[None], tokens, z0, noise) for t in torch.linspace(0, 1, 11)])
    moving = boundary.times(torch.zeros(1), tokens, z0, noise)[0] < 1
    assert (times.diff(dim=0)[:, moving] > 0).all()
    assert torch.allclose(times[-1], torch.ones(40, dtype=torch.float64))
    surer = BoundaryConditional(ALL[0], embedding, min(1.0, confidence + 0.5))
    assert (surer.times(T[2:3], tokens, z0, noise) >= boundary.times(T[2:3], tokens, z0, noise)).all()


def test_chunks_change_nothing(
    parts: tuple[TokenEmbedding, Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = boundary_ratio(*parts)
    monkeypatch.setattr("noise2text.diffusion.boundary_conditional.MAX_BOUNDARY_LOGITS", 50 * 7)
    assert torch.allclose(boundary_ratio(*parts), whole)


def test_biases_and_schedules_by_position_are_refused() -> None:
    with pytest.raises(Problem, match="without a bias"):
        BoundaryConditional(ALL[0], TokenEmbedding(5, 2, bias=True), 1.0)
    speeds = TokenSpeeds(SCHEDULES["sqrt"](2000), 8, anchor_distance=10)
    zeros = torch.zeros(2, 8, 2)
    with pytest.raises(Problem, match="same at all positions"):
        BoundaryConditional(speeds, TokenEmbedding(5, 2), 1.0)(
            torch.ones(2), torch.zeros(2, 8, dtype=torch.long), zeros, zeros + 1
        )


@pytest.mark.parametrize("steps", [1, 5])
def test_the_sampler_without_confidence_is_ddim(steps: int, small: Make) -> None:
    model = small()
    canvas = model.layout.make_empty_canvas(
        model.layout.make_source(RaggedRows.from_lists([[8, 9, 10], [11]])), torch.tensor([[4], [6]]), width=6
    )
    with torch.inference_mode():
        process = ReverseProcess(
            model.denoiser,
            model.schedule,
            model.denoiser.encode(canvas.source),
            model.denoiser.constrain(canvas),
            make_key(0, torch.arange(2)),
            strided_times(steps, num_timesteps=2000),
            solver=Solver(Ddim(0.0)),
        )
        expected = sample(process).z0
        assert torch.allclose(BoundarySampler(0.0)(process).z0, expected, atol=1e-4)
        sure = BoundarySampler(1.0)(process).z0
        assert torch.allclose(sure, expected, atol=1e-4) == (steps == 1)


def noisy_canvas(recipe: str, confidence: float, model: LengthPredictingModel) -> tuple[Tensor, Tensor]:
    """What the denoiser sees at the earliest time of training, and the tokens."""
    config = find_recipe(recipe).preset("tiny").replace(noise_factor=1.0, boundary_confidence=confidence)
    objective = find_recipe(recipe).objective(config, model)
    rows = RaggedRows.from_lists([[20, 21, 22, 23, 24]])
    canvas = model.layout.make_canvas(rows, rows)
    draws = objective.draw(canvas, make_key(0, torch.arange(1)), make_key(0))
    seen: list[Tensor] = []
    hook = model.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    objective(canvas, dataclasses.replace(draws, t=torch.full((1,), 0.0005, dtype=torch.float64)))
    hook.remove()
    return seen[-1], canvas.tokens


@pytest.mark.parametrize("recipe", ["difformer", "flow"])
def test_training_noises_from_the_boundary_on(recipe: str, small: Make) -> None:
    model = small(embedding_dim=64)
    assert is_decodable(model.denoiser.embedding, *noisy_canvas(recipe, 0.0, model)).all()
    assert not is_decodable(model.denoiser.embedding, *noisy_canvas(recipe, 1.0, model)).any()
