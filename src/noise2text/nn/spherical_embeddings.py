"""Embeddings on a sphere: z₀ = √d · E[y] / ‖E[y]‖, and back by logits = ẑ₀ · z₀ᵀ over all tokens.

The cross-entropy alone would push the embeddings apart without limit, because distance makes noise harmless.
On the sphere of radius √d the mean square of their channels is always 1 (CDCD, Dieleman et al., 2022; the
released DiNoiSer does the same).
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import embedding, normalize

from noise2text.nn.embeddings import LazyLogits, ProjectedLogits, TokenEmbedding

__all__ = ["SphericalEmbedding"]


class SphericalEmbedding(TokenEmbedding):
    """A learned table of directions; every embedding has length √d."""

    @property
    def vectors(self) -> Tensor:
        return normalize(self.weight, dim=1) * math.sqrt(self.dim)

    def embed(self, tokens: Tensor) -> Tensor:
        return embedding(tokens, self.vectors)

    def lazy_logits(self, x: Tensor) -> LazyLogits:
        return ProjectedLogits(x, self.vectors, self.bias)
