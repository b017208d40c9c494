"""What the laws of diffusion models rest on; test_check_recipe.py runs the laws themselves."""

from __future__ import annotations

import pytest
import torch

from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe
from noise2text.nn.separate_source_transformer import SeparateSourceTransformer

from ..conftest import DIFFUSION, NO_DIFFUSION, shrunk

SOURCES = RaggedRows.from_lists([[8, 9, 10, 11], [12, 13], [14, 15, 16]])
TARGETS = RaggedRows.from_lists([[20, 21, 22], [23, 24, 25, 26, 27], [28, 29]])


def test_every_recipe_is_a_diffusion_model_or_is_listed_with_the_reason(tokenizer: Tokenizer) -> None:
    for name in (*NO_DIFFUSION, *DIFFUSION):
        recipe = find_recipe(name)
        with torch.device("meta"):
            model = recipe.build(recipe.preset("tiny"), tokenizer)
        assert isinstance(model, DiffusionModel) == (name not in NO_DIFFUSION), NO_DIFFUSION.get(name, name)


def embed_tokens(model: DiffusionModel, canvas: Canvas) -> torch.Tensor:
    """Every token's embedding; where the source has its own, they end with the separator."""
    own, tokens = model.denoiser.embedding.embed(canvas.tokens), canvas.tokens
    if not isinstance(model.denoiser, SeparateSourceTransformer):
        return own
    separates = tokens == model.tokenizer.sep
    source = (separates.cumsum(1) == 0) | separates
    return torch.where(source[..., None], model.denoiser.source_embedding.embed(tokens), own)


@pytest.mark.parametrize("name", DIFFUSION)
def test_what_is_given_has_the_embeddings_of_its_tokens(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    model = recipe.build(shrunk(recipe.preset("tiny")), tokenizer)
    assert isinstance(model, DiffusionModel)
    canvas = model.layout.make_canvas(SOURCES, TARGETS)
    assert torch.equal(model.denoiser.constrain(canvas).embeddings, embed_tokens(model, canvas))
