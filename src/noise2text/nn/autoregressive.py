"""A writer goes from left to right: p(y | x) = Π p(yᵢ | y₁ … yᵢ₋₁, x).

In training it sees a whole target at once (`forward`). In generation it takes a step a token and keeps what
it needs of the past in a cache of fixed size (`empty_cache`, `step`). The hypotheses of a sentence share its
encoder output; when a search drops some and continues from others, the cache follows (`reorder`). Steps
change the cache in place, take their position as a tensor and never synchronise with the host, so a step can
be captured as a CUDA graph and replayed.
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
    """Scores the next token, given the source and what was written so far."""

    embedding: (
        TokenEmbedding  # source, target and output share their embeddings; foreign networks keep their own
    )
    graph_capturable = True  # whether its passes can be CUDA graphs: the same operations each time

    @abstractmethod
    def encode(self, source: Source) -> EncoderOutput:
        """What the steps need of the sources, a row a sentence."""

    @abstractmethod
    def forward(self, tokens: Tensor, encoded: EncoderOutput) -> Tensor:
        """The scores (B, L, V) of what follows each token (B, L), all at once."""

    def lazy_logits(self, tokens: Tensor, encoded: EncoderOutput) -> LazyLogits:
        """The same, for a loss; a writer that ends in a product leaves it to be computed there."""
        return ComputedLogits(self(tokens, encoded))

    @abstractmethod
    def empty_cache(self, encoded: EncoderOutput, hypotheses: int, *, length: int) -> Any:
        """An empty notebook for so many hypotheses a sentence and so many steps."""

    @abstractmethod
    def step(
        self, tokens: Tensor, position: Tensor, cache: Any, encoded: EncoderOutput, *, cache_length: int
    ) -> Tensor:
        """The scores (B, K, V) of what follows the tokens (B, K) at this position (1,), below `visible`."""

    @abstractmethod
    def reorder(self, cache: Any, parents: Tensor) -> None:
        """Let hypothesis k of a sentence go on from its hypothesis parents[:, k]; parents are (B, K)."""


def shift_right(tokens: Tensor, first: int) -> Tensor:
    """What is read while the tokens (B, L) are written: the first token, then all but the last."""
    return torch.cat([torch.full_like(tokens[:, :1], first), tokens[:, :-1]], dim=1)
