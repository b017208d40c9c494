"""Rounding an embedding gives its token back; logits use the unscaled table."""

import torch

from noise2text.diffusion.space import Space


def test_round_of_embed_is_the_identity() -> None:
    torch.manual_seed(0)
    space = Space(500, 32)
    tokens = torch.arange(500)[None]
    assert torch.equal(space.nearest(space.embed(tokens)), tokens)


def test_embeddings_start_with_unit_variance_and_are_scaled_by_the_root_of_the_dimension() -> None:
    torch.manual_seed(0)
    space = Space(2000, 64)
    assert abs(space.embeddings.std().item() - 1) < 0.02
    assert torch.allclose(space.embed(torch.tensor([3])), 8 * space.table[3])


def test_logits_are_products_with_the_unscaled_table() -> None:
    torch.manual_seed(0)
    space = Space(10, 4)
    x = torch.randn(2, 3, 4)
    assert torch.allclose(space.logits(x), torch.einsum("bld,vd->blv", x, space.table))


def test_nearest_is_the_nearest() -> None:
    torch.manual_seed(1)
    space = Space(50, 4)
    x = torch.randn(3, 20, 4)
    assert torch.equal(space.nearest(x), torch.cdist(x, space.embeddings[None]).argmin(-1))
