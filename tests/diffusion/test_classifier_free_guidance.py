"""Guidance is the hand-computed combination of two plain passes, for one canvas and for encoder-decoders."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_free_guidance import ClassifierFreeDenoiser
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.solvers import strided_times
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import ClampedDenoiser, NoiseLevel

from ..conftest import shrunk

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
CANDIDATES = 2


def model_of(name: str, tokenizer: Tokenizer) -> DiffusionModel:
    torch.manual_seed(0)
    model: DiffusionModel = find_recipe(name).build(shrunk(find_recipe(name).preset("tiny")), tokenizer)
    for parameter in model.denoiser.parameters():  # untrained weights hardly look at the source
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def prompt_of(model: DiffusionModel) -> Canvas:
    source = model.layout.make_source(RaggedRows.from_lists(SOURCES))
    return model.layout.make_empty_canvas(source, torch.tensor([[3, 5]] * 3), width=5)


@pytest.mark.parametrize("name", ["diffuseq-guided", "diffuseq-epsilon", "difformer", "seqdiffuseq"])
@pytest.mark.parametrize("weight", [-1.0, 0.0, 0.5, 2.0])
@pytest.mark.parametrize("rows", [1, 6])
@torch.no_grad()
def test_the_estimate_is_the_combination_of_two_plain_passes(
    name: str, weight: float, rows: int, tokenizer: Tokenizer
) -> None:
    model = model_of(name, tokenizer)
    plain, guided = model.denoiser, ClassifierFreeDenoiser(model.denoiser, model.layout, weight)
    canvas = prompt_of(model)
    without_source = model.layout.without_source(canvas)
    z, self_condition = torch.randn(2, 6, canvas.tokens.shape[1], plain.embedding.dim)
    level: NoiseLevel = model.schedule(torch.linspace(0.3, 0.7, rows), z.shape[1])
    encoded, constraint = guided.encode(canvas.source), guided.constrain(canvas)
    made = guided(z, level, encoded, constraint, self_condition)
    empty_source = plain.encode(model.layout.empty_source(canvas.source))
    with_source = plain(z, level, plain.encode(canvas.source), plain.constrain(canvas), self_condition)
    without = plain(z, level, empty_source, plain.constrain(without_source), self_condition)
    expected = (1 + weight) * with_source.z0 - weight * without.z0
    free = canvas.open_positions
    assert torch.allclose(made.z0[free], expected[free], atol=1e-5)
    assert torch.allclose(made.hidden[free], with_source.hidden[free], atol=1e-5)
    assert not torch.allclose(with_source.z0[free], without.z0[free], atol=1e-3)
    # Sampling sees the real source only.
    assert torch.equal(constraint.embeddings, plain.constrain(canvas).embeddings)
    assert len(encoded.padding) == len(SOURCES)  # and so does what proposes lengths


def test_the_factors_sum_to_one_so_the_noise_is_combined_alike() -> None:
    """ε̂ = (z − α·ẑ₀)/σ of the guided ẑ₀ is the same combination of the branches' ε̂."""
    torch.manual_seed(0)
    z, plain, blank = torch.randn(3, 4, dtype=torch.float64)
    alpha, sigma, weight = 0.6, 0.8, 1.5
    noise = [(z - alpha * estimate) / sigma for estimate in (plain, blank)]
    guided = (z - alpha * ((1 + weight) * plain - weight * blank)) / sigma
    assert torch.allclose(guided, (1 + weight) * noise[0] - weight * noise[1])
    thesis = (1 - weight) * noise[0] - weight * noise[1]  # algorithm 4 as printed
    assert not torch.allclose(guided, thesis)


@pytest.mark.parametrize("name", ["diffuseq-guided", "difformer"])
@torch.no_grad()
def test_at_weight_0_every_step_is_the_plain_model_s(name: str, tokenizer: Tokenizer) -> None:
    model = model_of(name, tokenizer)
    canvas, times = prompt_of(model), strided_times(4, num_timesteps=model.schedule.num_timesteps)
    keys = make_key(0, torch.arange(6))
    ways: list[list[SampledStep]] = [[], []]
    guided_denoiser = ClassifierFreeDenoiser(model.denoiser, model.layout, 0.0)
    for denoiser, steps in zip((model.denoiser, guided_denoiser), ways, strict=True):
        encoded, constraint = denoiser.encode(canvas.source), denoiser.constrain(canvas)
        sample(ReverseProcess(denoiser, model.schedule, encoded, constraint, keys, times), steps.append)
    assert len(ways[0]) == 4
    for plain, guided in zip(*ways, strict=True):
        free = ~canvas.padding
        assert torch.allclose(plain.estimate.z0[free], guided.estimate.z0[free], atol=1e-6)


def test_without_guidance_the_second_branch_is_not_computed(tokenizer: Tokenizer) -> None:
    model = model_of("diffuseq-guided", tokenizer)
    rows: list[int] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: rows.append(len(inputs[0])))
    for guidance_weight, expected in ((0.0, 2), (0.5, 4)):
        rows.clear()
        model.generate(["7 april", "12. mai"], steps=3, guidance_weight=guidance_weight)
        assert rows == [expected] * 3


def test_guidance_is_clamped_after_it_is_combined(tokenizer: Tokenizer) -> None:
    model = model_of("diffuseq-guided", tokenizer)
    config = dataclasses.replace(model.generation_config, guidance_weight=1.0, clamp=True)
    outer = model.wrap_denoiser(config, model.schedule)
    assert isinstance(outer, ClampedDenoiser)
    assert isinstance(outer.denoiser, ClassifierFreeDenoiser)
    constraint = outer.constrain(prompt_of(model))  # the clamp passes on the constraint of guidance
    assert len(constraint.paired.embeddings) == 2 * len(constraint.embeddings)  # type: ignore[attr-defined]


def test_a_guided_denoiser_refuses_what_another_has_encoded(tokenizer: Tokenizer) -> None:
    model = model_of("diffuseq-guided", tokenizer)
    canvas, plain = prompt_of(model), model.denoiser
    guided = ClassifierFreeDenoiser(plain, model.layout, 1.0)
    level: NoiseLevel = model.schedule(torch.tensor([0.5]), canvas.tokens.shape[1])
    z = torch.zeros(6, canvas.tokens.shape[1], plain.embedding.dim)
    with pytest.raises(TypeError, match="its own encode and constrain methods"):
        guided(z, level, plain.encode(canvas.source), plain.constrain(canvas), None)
