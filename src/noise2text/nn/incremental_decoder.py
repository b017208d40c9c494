"""A writer goes from left to right: p(y | x) = Π p(yᵢ | y₁ … yᵢ₋₁, x).

In training it sees a whole target at once (`forward`). In generation it takes a step a token and keeps what
it needs of the past in a notebook of fixed size (`begin`, `step`). The hypotheses of a sentence share its
memory; when a search drops some and goes on from others, the notebook follows (`reorder`). Steps change the
notebook in place, take their position as a tensor and never ask the host: one can be captured and replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.data.layouts.canvas import Source
from noise2text.nn.denoiser import Memory
from noise2text.nn.embeddings import Known, Scores, Space

__all__ = ["Writer", "shifted"]


class Writer(nn.Module, ABC):
    """Scores the next token, given the source and what was written so far."""

    space: Space  # source, target and output share their embeddings; foreign networks keep their own
    recordable = True  # whether its passes can be CUDA graphs: the same operations each time

    @abstractmethod
    def read(self, source: Source) -> Memory:
        """What the steps need of the sources, a row a sentence."""

    @abstractmethod
    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        """The scores (B, L, V) of what follows each token (B, L), all at once."""

    def scores(self, tokens: Tensor, memory: Memory) -> Scores:
        """The same, for a loss; a writer that ends in a product leaves it to be computed there."""
        return Known(self(tokens, memory))

    @abstractmethod
    def begin(self, memory: Memory, hypotheses: int, *, length: int) -> Any:
        """An empty notebook for so many hypotheses a sentence and so many steps."""

    @abstractmethod
    def step(
        self, tokens: Tensor, position: Tensor, notebook: Any, memory: Memory, *, visible: int
    ) -> Tensor:
        """The scores (B, K, V) of what follows the tokens (B, K) at this position (1,), below `visible`."""

    @abstractmethod
    def reorder(self, notebook: Any, parents: Tensor) -> None:
        """Let hypothesis k of a sentence go on from its hypothesis parents[:, k]; parents are (B, K)."""


def shifted(tokens: Tensor, first: int) -> Tensor:
    """What is read while the tokens (B, L) are written: the first token, then all but the last."""
    return torch.cat([torch.full_like(tokens[:, :1], first), tokens[:, :-1]], dim=1)
