"""Padding changes nothing; candidates share their sentence; every parameter learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from noise2text.core.random import gaussian, key
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.sampler import lay, strided
from noise2text.models import Diffusion
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import Level

from ..conftest import Make

SOURCES, TARGETS = [[8, 9, 10, 11], [12, 13]], [[20, 21, 22], [23, 24, 25, 26, 27]]


def level(rows: int) -> Level:
    return Level(torch.ones(rows, 1, 1), torch.ones(rows, 1, 1), torch.full((rows, 1), 0.4))


@pytest.mark.parametrize("guessed", [False, True])
def test_padding_and_batch_change_nothing(small: Make, guessed: bool) -> None:
    system = small()
    denoiser, layout = system.denoiser, system.layout
    keys = key(0, torch.arange(2))

    def estimate(rows: list[int], shape: tuple[int, int]) -> list[torch.Tensor]:
        canvas = layout.canvas(
            Rows.of([SOURCES[i] for i in rows]), Rows.of([TARGETS[i] for i in rows]), shape=shape
        )
        z = gaussian(keys[rows], 0, canvas.tokens.shape[1], denoiser.space.dim)
        guess = gaussian(keys[rows], 1, canvas.tokens.shape[1], denoiser.space.dim) if guessed else None
        made = denoiser(z, level(len(rows)), denoiser.read(canvas.source), denoiser.hold(canvas), guess)
        return [made.mean[j, : len(TARGETS[i])] for j, i in enumerate(rows)]

    with torch.no_grad():
        together = estimate([0, 1], (12, 9))
        for i in (0, 1):
            assert torch.allclose(estimate([i], (0, 0))[0], together[i], atol=1e-5)


def test_candidates_of_a_sentence_see_its_source_only(small: Make) -> None:
    system = small()
    denoiser, layout = system.denoiser, system.layout
    source = layout.source(Rows.of(SOURCES))
    canvas = layout.prompt(source, torch.full((2, 3), 4), width=4)
    z = gaussian(key(0, torch.arange(6)), 0, 4, denoiser.space.dim)
    with torch.no_grad():
        shared = denoiser(z, level(6), denoiser.read(source), denoiser.hold(canvas), None).mean
        copied = layout.source(Rows.of([SOURCES[i // 3] for i in range(6)]))
        apart = denoiser(z, level(6), denoiser.read(copied), denoiser.hold(canvas), None).mean
    assert torch.allclose(shared, apart, atol=1e-5)


def test_the_source_and_the_guess_matter(small: Make) -> None:
    system = small()
    denoiser, layout = system.denoiser, system.layout
    canvas = layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    other = layout.canvas(Rows.of([[30], [31]]), Rows.of(TARGETS))
    z = gaussian(key(0, torch.arange(2)), 0, 5, denoiser.space.dim)
    held = denoiser.hold(canvas)
    with torch.no_grad():
        memory = denoiser.read(canvas.source)
        plain = denoiser(z, level(2), memory, held, None).mean
        assert not torch.allclose(plain, denoiser(z, level(2), denoiser.read(other.source), held, None).mean)
        assert not torch.allclose(plain, denoiser(z, level(2), memory, held, z).mean)
        assert torch.equal(plain, denoiser(z, level(2), memory, held, torch.zeros_like(z)).mean)


def test_bfloat16_weights_give_float32_estimates(small: Make) -> None:
    system = small().to(torch.bfloat16)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    z = gaussian(key(0, torch.arange(2)), 0, 5, system.denoiser.space.dim)
    memory, held = system.denoiser.read(canvas.source), system.denoiser.hold(canvas)
    estimate = system.denoiser(z, level(2), memory, held, None)
    assert estimate.mean.dtype == torch.float32
    assert system.denoiser.logits(estimate).isfinite().all()


@pytest.mark.parametrize("name", ["difformer", "diffuseq", "ar-diffusion"])
def test_what_a_path_makes_of_its_clocks_is_what_the_network_would(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    system = recipe.build(recipe.resolve(recipe.settings("tiny"), tokenizer), tokenizer).eval()
    assert isinstance(system, Diffusion)
    denoiser, source = system.denoiser, system.layout.source(Rows.of(SOURCES))
    held = denoiser.hold(system.layout.prompt(source, torch.full((2, 1), 5), width=5))
    shape = held.given.shape
    with torch.no_grad():
        path = lay(denoiser, system.schedule, strided(4, resolution=40), shape[1], torch.device("cpu"))
        assert (path.ticks is None) == (path.table.shape[2] > 1)  # where each position has its own clock
        z, memory = gaussian(key(0, torch.arange(2)), 0, *shape[1:]), denoiser.read(source)
        for number in torch.arange(4).split(1):
            told = path.at(number).level
            plain = replace(told, ticks=None)
            first, second = (denoiser(z, each, memory, held, None).mean for each in (told, plain))
            assert torch.allclose(first, second, atol=1e-5)
