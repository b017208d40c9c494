"""Guidance is the hand-computed combination of two plain passes, for one canvas and for encoder-decoders."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from noise2text.core.random import key
from noise2text.data.layouts.canvas import Canvas
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_free_guidance import Guided
from noise2text.diffusion.sampler import strided, walk
from noise2text.models import Diffusion
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import Clamped, Level

from ..conftest import shrunk

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
CANDIDATES = 2


def system_of(name: str, tokenizer: Tokenizer) -> Diffusion:
    torch.manual_seed(0)
    system: Diffusion = find_recipe(name).build(shrunk(find_recipe(name).settings("tiny")), tokenizer)
    for parameter in system.denoiser.parameters():  # untrained weights hardly look at the source
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return system.eval()


def prompt_of(system: Diffusion) -> Canvas:
    source = system.layout.source(Rows.of(SOURCES))
    return system.layout.prompt(source, torch.tensor([[3, 5]] * 3), width=5)


@pytest.mark.parametrize("name", ["diffuseq-guided", "diffuseq-epsilon", "difformer", "seqdiffuseq"])
@pytest.mark.parametrize("weight", [-1.0, 0.0, 0.5, 2.0])
@pytest.mark.parametrize("rows", [1, 6])
@torch.no_grad()
def test_the_estimate_is_the_combination_of_two_plain_passes(
    name: str, weight: float, rows: int, tokenizer: Tokenizer
) -> None:
    system = system_of(name, tokenizer)
    plain, guided = system.denoiser, Guided(system.denoiser, system.layout, weight)
    canvas = prompt_of(system)
    blank = system.layout.blank(canvas)
    z, guess = torch.randn(2, 6, canvas.tokens.shape[1], plain.space.dim)
    level: Level = system.schedule(torch.linspace(0.3, 0.7, rows), z.shape[1])
    memory, held = guided.read(canvas.source), guided.hold(canvas)
    made = guided(z, level, memory, held, guess)
    silent = plain.read(system.layout.silent(canvas.source))
    with_source = plain(z, level, plain.read(canvas.source), plain.hold(canvas), guess)
    without = plain(z, level, silent, plain.hold(blank), guess)
    expected = (1 + weight) * with_source.mean - weight * without.mean
    free = ~canvas.frozen & ~canvas.padding
    assert torch.allclose(made.mean[free], expected[free], atol=1e-5)
    assert torch.allclose(made.hidden[free], with_source.hidden[free], atol=1e-5)
    assert not torch.allclose(with_source.mean[free], without.mean[free], atol=1e-3)
    assert torch.equal(held.given, plain.hold(canvas).given)  # the walk sees the real source only
    assert len(memory.padding) == len(SOURCES)  # and so does what proposes lengths


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
    system = system_of(name, tokenizer)
    canvas, times = prompt_of(system), strided(4, resolution=system.schedule.steps)
    keys = key(0, torch.arange(6))
    ways = []
    for denoiser in (system.denoiser, Guided(system.denoiser, system.layout, 0.0)):
        memory, held = denoiser.read(canvas.source), denoiser.hold(canvas)
        ways.append(list(walk(denoiser, system.schedule, memory, held, keys, times)))
    for plain, guided in zip(*ways, strict=True):
        free = ~canvas.padding
        assert torch.allclose(plain.estimate.mean[free], guided.estimate.mean[free], atol=1e-6)


def test_without_guidance_the_second_branch_is_not_computed(tokenizer: Tokenizer) -> None:
    system = system_of("diffuseq-guided", tokenizer)
    rows: list[int] = []
    system.denoiser.register_forward_pre_hook(lambda module, inputs: rows.append(len(inputs[0])))
    for guidance, expected in ((0.0, 2), (0.5, 4)):
        rows.clear()
        system.generate(["7 april", "12. mai"], steps=3, guidance=guidance)
        assert rows == [expected] * 3


def test_guidance_is_clamped_after_it_is_combined(tokenizer: Tokenizer) -> None:
    system = system_of("diffuseq-guided", tokenizer)
    how = dataclasses.replace(system.how, guidance=1.0, clamp=True)
    outer = system.guided(how)
    assert isinstance(outer, Clamped)
    assert isinstance(outer.denoiser, Guided)
    held = outer.hold(prompt_of(system))  # the clamp hands on what guidance holds
    assert held.both.given.shape[0] == 2 * held.given.shape[0]  # type: ignore[attr-defined]


def test_a_guided_denoiser_refuses_what_another_has_read(tokenizer: Tokenizer) -> None:
    system = system_of("diffuseq-guided", tokenizer)
    canvas, plain = prompt_of(system), system.denoiser
    guided = Guided(plain, system.layout, 1.0)
    level: Level = system.schedule(torch.tensor([0.5]), canvas.tokens.shape[1])
    z = torch.zeros(6, canvas.tokens.shape[1], plain.space.dim)
    with pytest.raises(TypeError, match="its own read and hold"):
        guided(z, level, plain.read(canvas.source), plain.hold(canvas), None)
