"""Autoregressive networks generate from left to right: p(y | x) = Π p(yᵢ | y₁ … yᵢ₋₁, x).

In training they read a whole target at once (`forward`). In generation they take one step per token and keep
what they need of the past in a cache of fixed size (`empty_cache`, `step`). The hypotheses of a sentence
share its encoder output; when a search drops some and continues others, the cache follows (`reorder`). A step
changes the cache in place, takes its position as a tensor and never synchronises with the host, so it can be
captured as a CUDA graph and replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.embeddings import ComputedLogits, LazyLogits, TokenEmbedding

__all__ = ["AutoregressiveNetwork", "shift_right"]


class AutoregressiveNetwork(nn.Module, ABC):
    """Predicts the next token, given the source and the target so far."""

    embedding: TokenEmbedding  # shared by source, target and output; pre-trained networks keep their own
    graph_capturable = True  # whether its steps can be CUDA graphs: the same operations each time

    @abstractmethod
    def encode(self, source: Source) -> EncoderOutput:
        """The encoded sources, one row per sentence."""

    @abstractmethod
    def forward(self, tokens: Tensor, encoded: EncoderOutput) -> Tensor:
        """The logits (B, L, V) of the token after each token (B, L)."""

    def lazy_logits(self, tokens: Tensor, encoded: EncoderOutput) -> LazyLogits:
        """The logits for a loss; a network that ends in a product leaves it to the loss to compute it."""
        return ComputedLogits(self(tokens, encoded))

    @abstractmethod
    def empty_cache(self, encoded: EncoderOutput, hypotheses: int, *, length: int) -> Any:
        """An empty cache with room for this many hypotheses per sentence and this many steps."""

    @abstractmethod
    def step(
        self, tokens: Tensor, position: Tensor, cache: Any, encoded: EncoderOutput, *, cache_length: int
    ) -> Tensor:
        """The logits (B, K, V) after the tokens (B, K) at this position (1,), below `cache_length`."""

    @abstractmethod
    def reorder(self, cache: Any, parents: Tensor) -> None:
        """Let hypothesis k of a sentence continue its hypothesis parents[:, k]; parents are (B, K)."""


def shift_right(tokens: Tensor, first: int) -> Tensor:
    """The decoder's input for the targets (B, L): the first token, then all but the last."""
    return torch.cat([torch.full_like(tokens[:, :1], first), tokens[:, :-1]], dim=1)
