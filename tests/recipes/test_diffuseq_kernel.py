"""The alternate kernel is DiffuSeq but for its head, with the thesis's shape."""

from __future__ import annotations

import dataclasses

import torch

from noise2text.core.random import key
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Diffusion
from noise2text.models.registry import find_recipe
from noise2text.nn.vocabulary_head import KernelTransformer
from noise2text.recipes.diffuseq_kernel import PRESETS, build, objective


def made(tokenizer: Tokenizer) -> Diffusion:
    torch.manual_seed(0)
    small = dataclasses.replace(PRESETS["tiny"], width=16, ffn=32, heads=2, layers=1, embedding=6)
    return build(small, tokenizer)


def test_the_preset_is_the_thesiss() -> None:
    settings = PRESETS["covost-de-en"]
    assert (settings.width, settings.ffn, settings.heads, settings.layers) == (512, 1024, 4, 6)
    assert settings.tokens // settings.max_source * settings.accumulate == 128
    assert settings.diffusion_steps == 2000


def test_it_is_trained_and_sampled_as_diffuseq_is(tokenizer: Tokenizer) -> None:
    system = made(tokenizer)
    plain = find_recipe("diffuseq").build(find_recipe("diffuseq").settings("tiny"), tokenizer)
    assert type(system.layout) is type(plain.layout)
    assert type(system.schedule) is type(plain.schedule)
    assert system.how.clamp == plain.how.clamp
    trained = objective(PRESETS["tiny"], system)
    assert set(trained.weights) == {"vlb", "rounding", "prior"}
    assert trained.denoiser is system.denoiser


def test_every_estimate_is_a_mean_of_embeddings_and_every_parameter_learns(tokenizer: Tokenizer) -> None:
    system = made(tokenizer)
    assert isinstance(system.denoiser, KernelTransformer)
    trained = objective(PRESETS["tiny"], system)
    canvas = system.layout.canvas(Rows.of([[8, 9, 10], [12, 13]]), Rows.of([[20, 21], [23, 24, 25]]))
    estimates: list[torch.Tensor] = []
    system.denoiser.register_forward_hook(lambda module, given, out: estimates.append(out.mean))
    tallies = trained(canvas, trained.draw(canvas, key(0, torch.arange(2)), key(0)))
    trained.loss({name: tally.total() for name, tally in tallies.items()}).backward()
    table = system.denoiser.space.embeddings
    assert (estimates[0] <= table.max(0).values + 1e-5).all()
    assert (estimates[0] >= table.min(0).values - 1e-5).all()
    for name, parameter in system.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
