"""Padding changes nothing; candidates share their sentence; every parameter learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import layer_norm

from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.sampler import ReverseProcess
from noise2text.diffusion.solvers import strided_times
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import NoiseLevel
from noise2text.nn.encoder_decoder import EncoderDecoder

from ..conftest import Make

SOURCES, TARGETS = [[8, 9, 10, 11], [12, 13]], [[20, 21, 22], [23, 24, 25, 26, 27]]


def level(rows: int) -> NoiseLevel:
    return NoiseLevel(torch.ones(rows, 1, 1), torch.ones(rows, 1, 1), torch.full((rows, 1), 0.4))


@pytest.mark.parametrize("self_conditioned", [False, True])
def test_padding_and_batch_change_nothing(small: Make, self_conditioned: bool) -> None:
    model = small()
    denoiser, layout = model.denoiser, model.layout
    keys = make_key(0, torch.arange(2))

    def estimate(rows: list[int], shape: tuple[int, int]) -> list[torch.Tensor]:
        canvas = layout.make_canvas(
            RaggedRows.from_lists([SOURCES[i] for i in rows]),
            RaggedRows.from_lists([TARGETS[i] for i in rows]),
            shape=shape,
        )
        z = gaussian_noise(keys[rows], 0, canvas.tokens.shape[1], denoiser.embedding.dim)
        self_condition = (
            gaussian_noise(keys[rows], 1, canvas.tokens.shape[1], denoiser.embedding.dim)
            if self_conditioned
            else None
        )
        output = denoiser(
            z, level(len(rows)), denoiser.encode(canvas.source), denoiser.constrain(canvas), self_condition
        )
        return [output.z0[j, : len(TARGETS[i])] for j, i in enumerate(rows)]

    with torch.no_grad():
        together = estimate([0, 1], (12, 9))
        for i in (0, 1):
            assert torch.allclose(estimate([i], (0, 0))[0], together[i], atol=1e-5)


def test_candidates_of_a_sentence_see_its_source_only(small: Make) -> None:
    model = small()
    denoiser, layout = model.denoiser, model.layout
    source = layout.make_source(RaggedRows.from_lists(SOURCES))
    canvas = layout.make_empty_canvas(source, torch.full((2, 3), 4), width=4)
    z = gaussian_noise(make_key(0, torch.arange(6)), 0, 4, denoiser.embedding.dim)
    with torch.no_grad():
        shared = denoiser(z, level(6), denoiser.encode(source), denoiser.constrain(canvas), None).z0
        copied = layout.make_source(RaggedRows.from_lists([SOURCES[i // 3] for i in range(6)]))
        apart = denoiser(z, level(6), denoiser.encode(copied), denoiser.constrain(canvas), None).z0
    assert torch.allclose(shared, apart, atol=1e-5)


def test_the_source_and_the_self_condition_matter(small: Make) -> None:
    model = small()
    denoiser, layout = model.denoiser, model.layout
    canvas = layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    other = layout.make_canvas(RaggedRows.from_lists([[30], [31]]), RaggedRows.from_lists(TARGETS))
    z = gaussian_noise(make_key(0, torch.arange(2)), 0, 5, denoiser.embedding.dim)
    constraint = denoiser.constrain(canvas)
    with torch.no_grad():
        encoded = denoiser.encode(canvas.source)
        plain = denoiser(z, level(2), encoded, constraint, None).z0
        assert not torch.allclose(
            plain, denoiser(z, level(2), denoiser.encode(other.source), constraint, None).z0
        )
        assert not torch.allclose(plain, denoiser(z, level(2), encoded, constraint, z).z0)
        assert torch.equal(plain, denoiser(z, level(2), encoded, constraint, torch.zeros_like(z)).z0)


def test_bfloat16_weights_give_float32_estimates(small: Make) -> None:
    model = small().to(torch.bfloat16)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    z = gaussian_noise(make_key(0, torch.arange(2)), 0, 5, model.denoiser.embedding.dim)
    encoded, constraint = model.denoiser.encode(canvas.source), model.denoiser.constrain(canvas)
    estimate = model.denoiser(z, level(2), encoded, constraint, None)
    assert estimate.z0.dtype == torch.float32
    assert model.denoiser.logits(estimate).isfinite().all()


@pytest.mark.parametrize("name", ["difformer", "diffuseq", "ar-diffusion"])
def test_the_step_tables_time_embeddings_are_the_networks(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model = recipe.build(recipe.resolve(recipe.preset("tiny"), tokenizer), tokenizer).eval()
    assert isinstance(model, DiffusionModel)
    denoiser, source = model.denoiser, model.layout.make_source(RaggedRows.from_lists(SOURCES))
    constraint = denoiser.constrain(model.layout.make_empty_canvas(source, torch.full((2, 1), 5), width=5))
    with torch.no_grad():
        encoded, keys = denoiser.encode(source), make_key(0, torch.arange(2))
        times = strided_times(4, num_timesteps=40)
        process = ReverseProcess(denoiser, model.schedule, encoded, constraint, keys, times)
        step_table = process.build_step_table()
        assert (step_table.time_embedding is None) == (
            step_table.table.shape[3] > 1
        )  # if each position has its own timestep
        z = gaussian_noise(keys, 0, *constraint.embeddings.shape[1:])
        for number in torch.arange(4).split(1):
            level_of_step = step_table.row(number).level
            plain = replace(level_of_step, time_embedding=None)
            first, second = (
                denoiser(z, each, encoded, constraint, None).z0 for each in (level_of_step, plain)
            )
            assert torch.allclose(first, second, atol=1e-5)


def test_the_decoder_input_and_the_output_are_those_by_hand(small: Make) -> None:
    """LayerNorm(FFN[P·z ; P·ẑ₀] + time + positions) goes in, and Q·state comes out; P and Q have no bias."""
    denoiser, layout = small().denoiser, small().layout
    assert isinstance(denoiser, EncoderDecoder)
    canvas = layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    z, guess = torch.randn(2, *canvas.tokens.shape, denoiser.embedding.dim)
    seen: list[torch.Tensor] = []
    denoiser.layers[0].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    with torch.no_grad():
        estimate = denoiser(z, level(2), denoiser.encode(canvas.source), denoiser.constrain(canvas), guess)
        projection = denoiser.input_projection.weight.T  # (d, W)
        first, activation, _, second = denoiser.combine
        both = torch.cat([z @ projection, guess @ projection], dim=-1)  # (B, L, 2W)
        mixed = second(activation(first(both)))
        positions = denoiser.position_embedding.weight[: z.shape[1]]
        total = mixed + denoiser.time_embedding(torch.full((2, 1), 0.4)) + positions
        expected = layer_norm(total, total.shape[-1:], denoiser.norm.weight, denoiser.norm.bias)
        torch.testing.assert_close(seen[0], expected, rtol=1e-4, atol=1e-5)
        output = estimate.hidden @ denoiser.get_parameter("output_projection.weight").T
        torch.testing.assert_close(estimate.z0, output, rtol=1e-4, atol=1e-5)
    names = dict(denoiser.named_parameters())
    for part in ("input_projection", "encoder.input_projection", "output_projection"):
        assert f"{part}.weight" in names
        assert f"{part}.bias" not in names
    assert names["input_projection.weight"] is not names["encoder.input_projection.weight"]


def test_dropout_follows_the_network_that_combines_z_with_its_estimate(small: Make) -> None:
    denoiser, layout = small(dropout=0.5).denoiser.train(), small().layout
    canvas = layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    z, guess = torch.randn(2, *canvas.tokens.shape, denoiser.embedding.dim)
    made: list[torch.Tensor] = []
    assert isinstance(denoiser, EncoderDecoder)
    denoiser.combine.register_forward_hook(lambda module, given, output: made.append(output))
    denoiser.norm.register_forward_pre_hook(lambda module, given: made.append(given[0]))
    denoiser(z, level(2), denoiser.encode(canvas.source), denoiser.constrain(canvas), guess)
    combined, normed = made
    kept = normed != 0
    assert 0.3 < kept.float().mean() < 0.7
    assert torch.equal(normed[kept], 2 * combined[kept])  # a kept value is scaled by 1/(1 − 0.5)
