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

__all__ = ["Search", "SearchLimits", "mask_forbidden"]


@dataclass(frozen=True)
class SearchLimits:
    """What may be written."""

    eos: int
    pad: int
    forbidden: Tensor  # the tokens that are never written
    max_length: int  # tokens before the end
    min_length: int = 0


class Search(ABC):
    """K hypotheses of each of B sentences on their way to their ends."""

    hypotheses: int  # K
    num_written: Tensor  # (1,), how many tokens each has

    def rewind(self) -> None:
        """Count again from the first token."""
        self.num_written.zero_()

    @abstractmethod
    def step(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """The next token of each hypothesis, and whose past it has: none where everyone keeps their own.

        Both are (B, K); the logits (B, K, V) may be written over.
        """

    @abstractmethod
    def is_finished(self) -> Tensor:
        """Whether nothing that is still to come can change the result; one boolean tensor."""

    @abstractmethod
    def get_hypotheses(self) -> tuple[Tensor, Tensor]:
        """The ended hypotheses (B, K, L), best or first drawn first, and their scores (B, K); −∞ is none."""


def mask_forbidden(logits: Tensor, limits: SearchLimits, num_written: Tensor) -> tuple[Tensor, Tensor]:
    """The logits without what is forbidden after `num_written` tokens, and their normaliser (B, K, 1)."""
    logits = logits.float()
    normaliser = logits.logsumexp(-1, keepdim=True)
    logits.index_fill_(-1, limits.forbidden, -torch.inf)
    logits[..., limits.eos].masked_fill_(num_written < limits.min_length, -torch.inf)
    return logits, normaliser
