"""The vocabulary head answers with a mean of embeddings, and says which tokens it means."""

from __future__ import annotations

import numpy as np
import torch

from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import Estimate
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import LayerShape
from noise2text.nn.spherical_embeddings import SphericalEmbedding
from noise2text.nn.vocabulary_head import (
    InterpolatingEncoderDecoder,
    InterpolatingTransformer,
    VocabularyHead,
)

SHAPE = LayerShape(16, 32, 2, dropout=0.0)


def test_the_estimate_is_the_mean_embedding_by_hand() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(5, 3)
    head = VocabularyHead(embedding, 4)
    hidden = torch.randn(2, 7, 4)
    with torch.no_grad():
        scores = hidden.numpy() @ head.projection.weight.numpy().T + head.projection.bias.numpy()
        shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        assert np.allclose(head(hidden), shares @ embedding.vectors.numpy(), rtol=0, atol=1e-5)


def test_the_estimate_lies_in_the_convex_hull_of_the_embeddings() -> None:
    """In no direction does a point of the hull go farther than the farthest embedding does."""
    torch.manual_seed(0)
    embedding = SphericalEmbedding(20, 6)
    head = VocabularyHead(embedding, 4)
    estimate = head(50 * torch.randn(300, 4))  # sharp and flat probabilities alike
    directions = torch.randn(2000, 6)
    farthest = (directions @ embedding.vectors.T).max(1).values
    assert ((estimate @ directions.T).max(0).values <= farthest + 1e-4).all()
    assert (estimate.norm(dim=-1) <= 6**0.5 + 1e-4).all()


def test_certainty_is_the_embedding_itself() -> None:
    embedding = TokenEmbedding(5, 3)
    head = VocabularyHead(embedding, 5)
    with torch.no_grad():
        head.projection.weight.copy_(1e4 * torch.eye(5))
    assert torch.allclose(head(torch.eye(5)), embedding.vectors, rtol=0, atol=1e-6)


def test_the_interpolating_network_generates_by_the_logits_of_its_head() -> None:
    torch.manual_seed(0)
    network = InterpolatingEncoderDecoder(
        SphericalEmbedding(9, 4),
        SHAPE,
        encoder_layers=1,
        decoder_layers=1,
        source_positions=8,
        target_positions=8,
    )
    estimate = Estimate(torch.zeros(1, 3, 4), torch.randn(1, 3, 16))
    assert torch.equal(network.logits(estimate), network.output_projection.projection(estimate.hidden))
    assert not any(name.startswith("out.weight") for name, _ in network.named_parameters())


def test_the_kernel_rounds_its_estimate_as_diffuseq_does() -> None:
    torch.manual_seed(0)
    network = InterpolatingTransformer(
        TokenEmbedding(9, 4, scale=1.0, bias=True), SHAPE, layers=1, positions=8
    )
    encoded = network.encode(Source(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2, dtype=torch.bool)))
    assert encoded.states.numel() == 0
    estimate = Estimate(torch.randn(1, 3, 4), torch.randn(1, 3, 16))
    assert torch.equal(network.logits(estimate), network.embedding.logits(estimate.z0))
