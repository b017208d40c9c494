"""The embedding space: z₀ = s · E[y], and back by logits = ẑ₀ · Eᵀ + b.

E is learned with the model and tied to the rounding. Difformer has s = √d and no bias; Diffusion-LM and its
heirs have s = 1 and a bias. E starts at N(0, 1/s²), so that z₀ starts with unit variance (σ_e = 1).

Logits stay a product that is not yet computed (`ProjectedLogits`): training multiplies by a table that is
padded to a round number of rows, which is several times faster on a GPU.
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
    """The unnormalised log-probability of every token at every position."""

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens."""

    def logits(self) -> Tensor:
        """All of them, (…, V)."""


@dataclass(frozen=True)
class ComputedLogits:
    """Scores that were computed before."""

    values: Tensor  # (…, V)

    @property
    def vocabulary(self) -> int:
        return self.values.shape[-1]

    def logits(self) -> Tensor:
        return self.values


@dataclass(frozen=True)
class ProjectedLogits:
    """Scores that are states · weightᵀ + bias."""

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
        self.scale = math.sqrt(dim) if scale is None else scale
        self.weight = nn.Parameter(torch.randn(vocab, dim) / self.scale)
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None

    @property
    def dim(self) -> int:
        """The dimension d of an embedding."""
        return self.weight.shape[1]

    @property
    def vectors(self) -> Tensor:
        """The place of every token in z₀'s space, (V, d)."""
        return self.weight * self.scale

    def embed(self, tokens: Tensor) -> Tensor:
        """z₀ of the tokens, one dimension more."""
        return nn.functional.embedding(tokens, self.weight) * self.scale

    def lazy_logits(self, x: Tensor) -> LazyLogits:
        """What every token scores at every position."""
        return ProjectedLogits(x, self.weight, self.bias)

    def logits(self, x: Tensor) -> Tensor:
        """The scores as a tensor, (…, V)."""
        return self.lazy_logits(x).logits()

    def nearest(self, x: Tensor) -> Tensor:
        """The token whose embedding is closest to x."""
        table = self.vectors.float()
        with allow_tf32(self.weight):
            return linear(x.float(), table, -table.square().sum(1) / 2).argmax(-1)
