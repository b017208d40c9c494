"""Embeddings on a sphere all have length √d; the likeliest token is the nearest."""

from __future__ import annotations

import torch

from noise2text.nn.spherical_embeddings import Sphere


def sphere() -> Sphere:
    torch.manual_seed(0)
    space = Sphere(30, 8)
    with torch.no_grad():
        space.table.mul_(torch.rand(30, 1) * 100)  # whatever training does to the lengths
    return space


def test_every_embedding_has_the_length_of_the_dimensions_root() -> None:
    assert torch.allclose(sphere().embeddings.norm(dim=1), torch.full((30,), 8**0.5), rtol=1e-6)


def test_embedding_a_token_is_its_row_and_rounding_gives_it_back() -> None:
    space, tokens = sphere(), torch.arange(30)
    assert torch.equal(space.embed(tokens), space.embeddings)
    assert torch.equal(space.logits(space.embed(tokens)).argmax(-1), tokens)


def test_the_likeliest_token_is_the_nearest() -> None:
    space, x = sphere(), 3 * torch.randn(200, 8)
    nearest = torch.cdist(x, space.embeddings).argmin(-1)
    assert torch.equal(space.logits(x).argmax(-1), nearest)
    assert torch.equal(space.nearest(x), nearest)


def test_training_can_only_turn_an_embedding() -> None:
    """The gradient is at right angles to each row: its length has no say."""
    space = sphere()
    (space.embeddings * torch.randn(30, 8)).sum().backward()
    assert space.table.grad is not None
    product = (space.table.grad * space.table).sum(1)
    assert (product.abs() <= 1e-4 * space.table.grad.norm(dim=1) * space.table.norm(dim=1) + 1e-6).all()
