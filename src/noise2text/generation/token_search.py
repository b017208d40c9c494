"""Search: keeps K hypotheses per sentence and chooses the next token of each.

The state of a search is tensors of fixed size that are changed in place, and a step never waits for the
device. So one step of the network and of the search can be captured as a CUDA graph. A hypothesis ends with
[EOS], which counts as one of its tokens; at the maximal length [EOS] must come next. Its score is

    log p(y | x) / |y|^a

with a the length penalty (Wu et al., 2016, without their constants; 0 is none, 1 is the mean over the
tokens). Forbidden tokens are never chosen but keep their probability: scores are those of the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Search", "SearchLimits", "mask_forbidden"]


@dataclass(frozen=True)
class SearchLimits:
    """Which tokens and how many of them a hypothesis may have."""

    eos: int
    pad: int
    forbidden_tokens: Tensor  # ids of the tokens that are never chosen
    max_length: int  # in tokens, without [EOS]
    min_length: int = 0


class Search(ABC):
    """A search over K unfinished hypotheses for each of B sentences."""

    hypotheses: int  # K
    num_written: Tensor  # (1,), how many tokens each hypothesis has

    def rewind(self) -> None:
        """Count again from the first token."""
        self.num_written.zero_()

    @abstractmethod
    def step(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """The next token of each hypothesis and the hypothesis that it extends: None if each extends itself.

        Both are (B, K). The logits (B, K, V) may be overwritten.
        """

    @abstractmethod
    def is_finished(self) -> Tensor:
        """Whether no further step can change the result, as one boolean tensor."""

    @abstractmethod
    def get_hypotheses(self) -> tuple[Tensor, Tensor]:
        """The finished hypotheses (B, K, L), best or first sampled first, and scores (B, K); −∞ is none."""


def mask_forbidden(logits: Tensor, limits: SearchLimits, num_written: Tensor) -> tuple[Tensor, Tensor]:
    """The logits with −∞ for what is forbidden after `num_written` tokens, and their normalizer (B, K, 1)."""
    logits = logits.float()
    normalizer = logits.logsumexp(-1, keepdim=True)
    logits.index_fill_(-1, limits.forbidden_tokens, -torch.inf)
    logits[..., limits.eos].masked_fill_(num_written < limits.min_length, -torch.inf)
    return logits, normalizer
