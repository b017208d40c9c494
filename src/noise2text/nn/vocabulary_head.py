"""The vocabulary head predicts token probabilities; the clean estimate is the mean embedding under them,

    p = softmax(W·h + b),    ẑ₀ = Σ_w p_w · e_w.

Demirag (2023, 3.2.4, the alternate diffusion kernel) adds it to DiffuSeq. CDCD (Dieleman et al., 2022) calls
it score interpolation, because the score of z_t is the same mean over the scores of each token. The estimate
never leaves the convex hull of the embeddings.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from noise2text.nn.denoiser import Estimate
from noise2text.nn.embeddings import LazyLogits, ProjectedLogits, TokenEmbedding
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.layers import LayerShape, init_weights

__all__ = ["InterpolatingEncoderDecoder", "InterpolatingTransformer", "VocabularyHead"]


class VocabularyHead(nn.Module):
    """Maps hidden states to the mean embedding under the predicted probabilities."""

    def __init__(self, embedding: TokenEmbedding, model_dim: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.projection = nn.Linear(model_dim, len(embedding.weight))
        self.apply(init_weights)

    def logits(self, hidden: Tensor) -> Tensor:
        """The unnormalised log-probability of every token, (B, L, V)."""
        logits: Tensor = self.projection(hidden)
        return logits

    def lazy_logits(self, hidden: Tensor) -> LazyLogits:
        """The same logits, not yet computed."""
        return ProjectedLogits(hidden, self.projection.weight, self.projection.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """ẑ₀ for the last states (B, L, W), in float32."""
        return self.logits(hidden).float().softmax(-1) @ self.embedding.vectors.float()


class InterpolatingEncoderDecoder(EncoderDecoder):
    """The encoder-decoder with a vocabulary head, whose logits also give the final tokens (CDCD)."""

    output_projection: VocabularyHead

    def __init__(self, embedding: TokenEmbedding, shape: LayerShape, **sizes: Any) -> None:
        super().__init__(embedding, shape, **sizes)
        self.output_projection = VocabularyHead(embedding, shape.model_dim)

    def lazy_logits(self, estimate: Estimate) -> LazyLogits:
        return self.output_projection.lazy_logits(estimate.hidden)

    def logits(self, estimate: Estimate) -> Tensor:
        return self.output_projection.logits(estimate.hidden)  # calls the layer, which may be an int8 one


class InterpolatingTransformer(JointTransformer):
    """The encoder-only denoiser with a vocabulary head (Demirag, 2023, fig. 3.1); ẑ₀ is rounded as usual."""

    def __init__(self, embedding: TokenEmbedding, shape: LayerShape, **sizes: Any) -> None:
        super().__init__(embedding, shape, **sizes)
        self.output_projection = VocabularyHead(embedding, shape.model_dim)
