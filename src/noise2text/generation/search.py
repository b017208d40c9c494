"""Which token comes next: a search keeps K hypotheses a sentence and chooses how each goes on.

Its state is tensors of fixed size, changed in place, and it never asks the host: together with a writer's
step, one choice can be captured and replayed. A hypothesis ends with [EOS], which counts as a token of
it; where there is no room left, the end is all that may come. The score of a hypothesis is

    log p(y | x) / |y|^a

with a the length penalty (Wu et al., 2016, without their constants; 0 is none, 1 the mean of the
tokens'). What may not be written is passed over, but keeps its probability: a score is the model's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Rules", "Search", "surprise"]


@dataclass(frozen=True)
class Rules:
    """What may be written."""

    eos: int
    pad: int
    forbidden: Tensor  # the tokens that are never written
    longest: int  # tokens before the end
    shortest: int = 0


class Search(ABC):
    """K hypotheses of each of B sentences on their way to their ends."""

    hypotheses: int  # K
    count: Tensor  # (1,), how many tokens each has

    def rewind(self) -> None:
        """Count again from the first token."""
        self.count.zero_()

    @abstractmethod
    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """The next token of each hypothesis, and whose past it has: none where everyone keeps their own.

        Both are (B, K); the logits (B, K, V) may be written over.
        """

    @abstractmethod
    def over(self) -> Tensor:
        """Whether nothing that is still to come can change the result; one boolean tensor."""

    @abstractmethod
    def result(self) -> tuple[Tensor, Tensor]:
        """The ended hypotheses (B, K, L), best or first drawn first, and their scores (B, K); −∞ is none."""


def surprise(logits: Tensor, rules: Rules, count: Tensor) -> tuple[Tensor, Tensor]:
    """The logits without what is forbidden after `count` tokens, and their normaliser (B, K, 1)."""
    logits = logits.float()
    normaliser = logits.logsumexp(-1, keepdim=True)
    logits.index_fill_(-1, rules.forbidden, -torch.inf)
    logits[..., rules.eos].masked_fill_(count < rules.shortest, -torch.inf)
    return logits, normaliser
