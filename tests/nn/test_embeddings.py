"""Rounding an embedding gives its token back; logits use the unscaled table."""

import pytest
import torch

from noise2text.nn.embeddings import TokenEmbedding


def test_round_of_embed_is_the_identity() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(500, 32)
    tokens = torch.arange(500)[None]
    assert torch.equal(embedding.nearest(embedding.embed(tokens)), tokens)


def test_embeddings_start_with_unit_variance_and_are_scaled_by_the_root_of_the_dimension() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(2000, 64)
    assert abs(embedding.vectors.std().item() - 1) < 0.02
    assert torch.allclose(embedding.embed(torch.tensor([3])), 8 * embedding.weight[3])


def test_logits_are_products_with_the_unscaled_table() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(10, 4)
    x = torch.randn(2, 3, 4)
    assert torch.allclose(embedding.logits(x), torch.einsum("bld,vd->blv", x, embedding.weight))


def test_nearest_is_the_nearest() -> None:
    torch.manual_seed(1)
    embedding = TokenEmbedding(50, 4)
    x = torch.randn(3, 20, 4)
    assert torch.equal(embedding.nearest(x), torch.cdist(x, embedding.vectors[None]).argmin(-1))


DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


@pytest.mark.parametrize("device", DEVICES)
def test_a_coarse_table_is_rounded_to_by_quick_products_and_nothing_else_is(device: str) -> None:
    torch.manual_seed(2)
    embedding = TokenEmbedding(3000, 64).to(device, torch.bfloat16)
    tokens = torch.arange(3000, device=device)[None]
    near = embedding.embed(tokens).float() + 0.3 * torch.randn(1, 3000, 64, device=device)
    before = torch.get_float32_matmul_precision()
    agrees = embedding.nearest(near) == torch.cdist(near[0], embedding.vectors.float()).argmin(-1)
    assert agrees.float().mean() > 0.999
    assert torch.get_float32_matmul_precision() == before
