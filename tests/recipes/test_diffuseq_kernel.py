"""The alternate kernel is DiffuSeq but for its head, with Demirag's shape."""

from __future__ import annotations

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe
from noise2text.nn.vocabulary_head import InterpolatingTransformer
from noise2text.recipes.diffuseq_kernel import PRESETS, RECIPE, build


def made(tokenizer: Tokenizer) -> DiffusionModel:
    torch.manual_seed(0)
    small = PRESETS["tiny"].replace(model_dim=16, ffn_dim=32, heads=2, layers=1, embedding_dim=6)
    return build(small, tokenizer)


def test_the_preset_is_the_thesiss() -> None:
    config = PRESETS["covost-de-en"]
    shape = config.model
    assert (shape.model_dim, shape.ffn_dim, shape.heads, shape.layers) == (512, 1024, 4, 6)
    assert config.optim.max_tokens // config.data.max_source * config.optim.accumulate == 128
    assert config.diffusion.num_timesteps == 2000


def test_it_is_trained_and_sampled_as_diffuseq_is(tokenizer: Tokenizer) -> None:
    model = made(tokenizer)
    plain = find_recipe("diffuseq").build(find_recipe("diffuseq").preset("tiny"), tokenizer)
    assert type(model.layout) is type(plain.layout)
    assert type(model.schedule) is type(plain.schedule)
    assert model.generation_config.clamp == plain.generation_config.clamp
    trained = RECIPE.objective(PRESETS["tiny"], model)
    assert set(trained.weights) == {"vlb", "rounding", "prior"}
    assert trained.denoiser is model.denoiser


def test_every_estimate_is_a_mean_of_embeddings_and_every_parameter_learns(tokenizer: Tokenizer) -> None:
    model = made(tokenizer)
    assert isinstance(model.denoiser, InterpolatingTransformer)
    trained = RECIPE.objective(PRESETS["tiny"], model)
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8, 9, 10], [12, 13]]), RaggedRows.from_lists([[20, 21], [23, 24, 25]])
    )
    estimates: list[torch.Tensor] = []
    model.denoiser.register_forward_hook(lambda module, given, out: estimates.append(out.z0))
    token_losses = trained(canvas, trained.draw(canvas, make_key(0, torch.arange(2)), make_key(0)))
    trained.loss({name: token_loss.total() for name, token_loss in token_losses.items()}).backward()
    table = model.denoiser.embedding.vectors
    assert (estimates[0] <= table.max(0).values + 1e-5).all()
    assert (estimates[0] >= table.min(0).values - 1e-5).all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("name", ["diffuseq-kernel", "diffuseq-decoupled"])
def test_a_network_that_computes_the_estimate_takes_no_other_parameterization(
    name: str, tokenizer: Tokenizer
) -> None:
    recipe = find_recipe(name)
    with pytest.raises(Problem, match="must be z0"):
        recipe.build(recipe.preset("tiny").replace(parameterization="velocity"), tokenizer)
