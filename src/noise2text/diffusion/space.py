"""The embedding space: z₀ = √d · E[y], and back by logits = ẑ₀ · Eᵀ.

E is learned with the model and tied to the rounding, which uses the unscaled E and no bias (Difformer).
E starts at N(0, 1/d), so that z₀ starts with unit variance: σ_e = 1 in the papers' terms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["Space"]


class Space(nn.Module):
    """A learned table of token embeddings."""

    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, dim) / math.sqrt(dim))

    @property
    def dim(self) -> int:
        """The dimension d of an embedding."""
        return self.table.shape[1]

    @property
    def embeddings(self) -> Tensor:
        """The place of every token in z₀'s space, (V, d)."""
        return self.table * math.sqrt(self.dim)

    def embed(self, tokens: Tensor) -> Tensor:
        """z₀ of the tokens, one dimension more."""
        return nn.functional.embedding(tokens, self.table) * math.sqrt(self.dim)

    def logits(self, x: Tensor) -> Tensor:
        """The unnormalised log-probability of every token at every position."""
        return x.to(self.table.dtype) @ self.table.T

    def nearest(self, x: Tensor) -> Tensor:
        """The token whose embedding is closest to x."""
        table = self.embeddings.float()
        return (x.float() @ table.T - table.square().sum(1) / 2).argmax(-1)
