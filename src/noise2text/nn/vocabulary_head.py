"""The vocabulary head: probabilities of all tokens, and their mean embedding as the clean estimate,

    p = softmax(W·h + b),    ẑ₀ = Σ_w p_w · e_w.

The thesis puts it into DiffuSeq (3.2.4, the alternate diffusion kernel); CDCD (Dieleman et al., 2022) calls
it score interpolation, because the score of the noisy canvas is the same mean of the scores towards each
token. The estimate never leaves the convex hull of the embeddings.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from noise2text.nn.denoiser import Estimate
from noise2text.nn.embeddings import Product, Scores, Space
from noise2text.nn.encoder_decoder import EncoderDecoder
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.layers import start

__all__ = ["InterpolatingEncoderDecoder", "KernelTransformer", "VocabularyHead"]


class VocabularyHead(nn.Module):
    """States to the mean embedding under the predicted probabilities."""

    def __init__(self, space: Space, width: int) -> None:
        super().__init__()
        self.space = space
        self.scores = nn.Linear(width, len(space.table))
        self.apply(start)

    def logits(self, hidden: Tensor) -> Tensor:
        """The unnormalised log-probability of every token, (B, L, V)."""
        scores: Tensor = self.scores(hidden)
        return scores

    def product(self, hidden: Tensor) -> Scores:
        """The same, not yet computed."""
        return Product(hidden, self.scores.weight, self.scores.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """ẑ₀ for the last states (B, L, W), in float32."""
        return self.logits(hidden).float().softmax(-1) @ self.space.embeddings.float()


class InterpolatingEncoderDecoder(EncoderDecoder):
    """The encoder-decoder with a vocabulary head, whose scores are also what is written in the end (CDCD)."""

    out: VocabularyHead

    def __init__(self, space: Space, *, width: int, **shape: Any) -> None:
        super().__init__(space, width=width, **shape)
        self.out = VocabularyHead(space, width)

    def scores(self, estimate: Estimate) -> Scores:
        return self.out.product(estimate.hidden)

    def logits(self, estimate: Estimate) -> Tensor:
        return self.out.logits(estimate.hidden)  # the layer itself, which may count in whole numbers (int8)


class KernelTransformer(JointTransformer):
    """The encoder-only denoiser with a vocabulary head (the thesis, fig. 3.1); ẑ₀ is rounded as before."""

    def __init__(self, space: Space, *, width: int, **shape: Any) -> None:
        super().__init__(space, width=width, **shape)
        self.down = VocabularyHead(space, width)
