"""The embedding space: z₀ = s · E[y], and back by logits = ẑ₀ · Eᵀ + b.

E is learned with the model and tied to the rounding. Difformer has s = √d and no bias; Diffusion-LM and its
heirs have s = 1 and a bias. E starts at N(0, 1/s²), so that z₀ starts with unit variance (σ_e = 1).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from noise2text.hardware import tensor_cores

__all__ = ["Space"]


class Space(nn.Module):
    """A learned table of token embeddings."""

    def __init__(self, vocab: int, dim: int, *, scale: float | None = None, bias: bool = False) -> None:
        super().__init__()
        self.scale = math.sqrt(dim) if scale is None else scale
        self.table = nn.Parameter(torch.randn(vocab, dim) / self.scale)
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None

    @property
    def dim(self) -> int:
        """The dimension d of an embedding."""
        return self.table.shape[1]

    @property
    def embeddings(self) -> Tensor:
        """The place of every token in z₀'s space, (V, d)."""
        return self.table * self.scale

    def embed(self, tokens: Tensor) -> Tensor:
        """z₀ of the tokens, one dimension more."""
        return nn.functional.embedding(tokens, self.table) * self.scale

    def logits(self, x: Tensor) -> Tensor:
        """The unnormalised log-probability of every token at every position."""
        return nn.functional.linear(x.to(self.table.dtype), self.table, self.bias)

    def nearest(self, x: Tensor) -> Tensor:
        """The token whose embedding is closest to x."""
        table = self.embeddings.float()
        with tensor_cores(self.table):
            return nn.functional.linear(x.float(), table, -table.square().sum(1) / 2).argmax(-1)
