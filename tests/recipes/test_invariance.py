"""What a text becomes does not depend on the texts beside it, whatever noise a position or a level has."""

from __future__ import annotations

import pytest
import torch

from noise2text.data.tokenizer import Tokenizer
from noise2text.models.registry import find_recipe

from ..conftest import shrunk

TEXTS = ["sunday, 7 april 1957", "12. mai 2001", "1 june 1999, a long way to write a date"]


@pytest.mark.parametrize("name", ["diffuseq-kernel", "dinoiser", "cdcd", "ar-diffusion"])
def test_a_text_is_the_same_alone_and_in_company(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model = recipe.build(shrunk(recipe.preset("tiny")), tokenizer).eval()
    together = model.generate(TEXTS, steps=4, seed=3)
    alone = model.generate(TEXTS, steps=4, seed=3, batch=1)
    assert together.candidates == alone.candidates
