"""Embeddings on a sphere all have length √d; the likeliest token is the nearest."""

from __future__ import annotations

import torch

from noise2text.nn.spherical_embeddings import SphericalEmbedding


def sphere() -> SphericalEmbedding:
    torch.manual_seed(0)
    embedding = SphericalEmbedding(30, 8)
    with torch.no_grad():
        embedding.weight.mul_(torch.rand(30, 1) * 100)  # whatever training does to the lengths
    return embedding


def test_every_embedding_has_the_length_of_the_dimensions_root() -> None:
    assert torch.allclose(sphere().vectors.norm(dim=1), torch.full((30,), 8**0.5), rtol=1e-6)


def test_embedding_a_token_is_its_row_and_rounding_gives_it_back() -> None:
    embedding, tokens = sphere(), torch.arange(30)
    assert torch.equal(embedding.embed(tokens), embedding.vectors)
    assert torch.equal(embedding.logits(embedding.embed(tokens)).argmax(-1), tokens)


def test_the_most_likely_token_is_the_nearest() -> None:
    embedding, x = sphere(), 3 * torch.randn(200, 8)
    nearest = torch.cdist(x, embedding.vectors).argmin(-1)
    assert torch.equal(embedding.logits(x).argmax(-1), nearest)
    assert torch.equal(embedding.nearest(x), nearest)


def test_training_can_only_rotate_an_embedding() -> None:
    """The gradient is at right angles to each row: its length has no say."""
    embedding = sphere()
    (embedding.vectors * torch.randn(30, 8)).sum().backward()
    assert embedding.weight.grad is not None
    product = (embedding.weight.grad * embedding.weight).sum(1)
    assert (
        product.abs() <= 1e-4 * embedding.weight.grad.norm(dim=1) * embedding.weight.norm(dim=1) + 1e-6
    ).all()
