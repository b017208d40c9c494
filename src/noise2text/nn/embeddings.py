"""Token embeddings: z₀ = s · E[y], and rounding by logits = ẑ₀ · Eᵀ + b.

E is learned with the model and shared with the rounding. Difformer has s = √d and no bias; Diffusion-LM and
its successors have s = 1 and a bias. E starts at N(0, 1/s²), so z₀ starts with unit variance (σ_e = 1).

A loss gets logits as a product that is not yet computed (`ProjectedLogits`), so that it can choose the
fastest way to compute it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from noise2text.core.devices import allow_tf32

__all__ = ["ComputedLogits", "LazyLogits", "ProjectedLogits", "TokenEmbedding"]


class LazyLogits(Protocol):
    """The unnormalised log-probability of every token at every position, computed on demand."""

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens."""

    def logits(self) -> Tensor:
        """The logits (…, V)."""


@dataclass(frozen=True)
class ComputedLogits:
    """Logits that are already computed."""

    values: Tensor  # (…, V)

    @property
    def vocabulary(self) -> int:
        return self.values.shape[-1]

    def logits(self) -> Tensor:
        return self.values


@dataclass(frozen=True)
class ProjectedLogits:
    """Logits that are states · weightᵀ + bias."""

    states: Tensor  # (…, d)
    weight: Tensor  # (V, d)
    bias: Tensor | None  # (V,)

    @property
    def vocabulary(self) -> int:
        return len(self.weight)

    def logits(self) -> Tensor:
        return linear(self.states.to(self.weight.dtype), self.weight, self.bias)


class TokenEmbedding(nn.Module):
    """A learned table of token embeddings."""

    def __init__(self, vocab: int, dim: int, *, scale: float | None = None, bias: bool = False) -> None:
        super().__init__()
        self.dim = dim  # d, of an embedding
        self.scale = math.sqrt(dim) if scale is None else scale
        self.weight = nn.Parameter(torch.randn(vocab, dim) / self.scale)
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None

    @property
    def vectors(self) -> Tensor:
        """z₀ of every token, (V, d)."""
        return self.weight * self.scale

    def embed(self, tokens: Tensor) -> Tensor:
        """z₀ (…, d) of the tokens (…)."""
        return nn.functional.embedding(tokens, self.weight) * self.scale

    def lazy_logits(self, x: Tensor) -> LazyLogits:
        """The logits of every token for x (…, d), not yet computed."""
        return ProjectedLogits(x, self.weight, self.bias)

    def logits(self, x: Tensor) -> Tensor:
        """The logits of every token for x (…, d), as (…, V)."""
        return self.lazy_logits(x).logits()

    def nearest(self, x: Tensor) -> Tensor:
        """The token whose embedding is closest to x."""
        table = self.vectors.float()
        with allow_tf32(self.weight):
            return linear(x.float(), table, -table.square().sum(1) / 2).argmax(-1)
