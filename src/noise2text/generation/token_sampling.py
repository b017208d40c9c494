"""Independent hypotheses: greedy search, and sampling from softmax(logits / temperature).

Top-k keeps the k likeliest tokens (Fan et al., 2018), top-p the fewest whose probabilities reach p (Holtzman
et al., 2020); the proportions of the kept tokens do not change. Each token is drawn by inverting the
cumulative distribution at a number in [0, 1), which depends on the key of the text and the position. So a
text depends neither on the batch nor on the other samples.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from noise2text.core.random import make_key, uniform
from noise2text.generation.token_search import Search, SearchLimits, mask_forbidden

__all__ = ["GreedySearch", "Sampling"]


class _IndependentSearch(Search):
    """Hypotheses that do not compete; each is extended until it ends."""

    def __init__(
        self, shape: tuple[int, int], *, limits: SearchLimits, length_penalty: float, device: torch.device
    ):
        self.hypotheses, self.limits, self.length_penalty = shape[1], limits, length_penalty
        self.num_written = torch.zeros(1, dtype=torch.long, device=device)
        self.scores = torch.zeros(shape, device=device)
        self.lengths = torch.zeros(shape, dtype=torch.long, device=device)
        self.finished = torch.zeros(shape, dtype=torch.bool, device=device)
        self.written = torch.full((*shape, limits.max_length + 1), limits.pad, device=device)

    @abstractmethod
    def pick(self, logits: Tensor) -> Tensor:
        """The next token (B, K) of each row of logits (B, K, V)."""

    def step(self, logits: Tensor) -> tuple[Tensor, None]:
        logits, normalizer = mask_forbidden(logits, self.limits, self.num_written)
        tokens = torch.where(self.num_written == self.limits.max_length, self.limits.eos, self.pick(logits))
        token_log_probs = logits.gather(-1, tokens[..., None]) - normalizer
        self.scores.add_(torch.where(self.finished, 0.0, token_log_probs[..., 0]))
        self.lengths.add_(~self.finished)
        tokens = torch.where(self.finished, self.limits.pad, tokens)
        self.written.index_copy_(2, self.num_written, tokens[..., None])
        self.finished |= tokens == self.limits.eos
        self.num_written.add_(1)
        return tokens, None

    def is_finished(self) -> Tensor:
        return self.finished.all()

    def get_hypotheses(self) -> tuple[Tensor, Tensor]:
        return self.written, self.scores / self.lengths**self.length_penalty


class GreedySearch(_IndependentSearch):
    """One text per sentence, extended by the likeliest token: a beam of 1 with less work."""

    def __init__(
        self, sentences: int, *, limits: SearchLimits, length_penalty: float, device: torch.device
    ) -> None:
        super().__init__((sentences, 1), limits=limits, length_penalty=length_penalty, device=device)

    def pick(self, logits: Tensor) -> Tensor:
        return logits.argmax(-1)


class Sampling(_IndependentSearch):
    """K texts per sentence, one for each of its keys (B, K), sampled token by token."""

    def __init__(
        self,
        keys: Tensor,
        *,
        limits: SearchLimits,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        length_penalty: float = 1.0,
    ) -> None:
        """`top_k` = 0 keeps all tokens."""
        shape = (keys.shape[0], keys.shape[1])
        super().__init__(shape, limits=limits, length_penalty=length_penalty, device=keys.device)
        self.keys, self.temperature, self.top_k, self.top_p = keys, temperature, top_k, top_p

    def pick(self, logits: Tensor) -> Tensor:
        size = logits.shape[-1]
        if self.top_k or self.top_p < 1:
            logits, tokens = logits.topk(min(self.top_k or size, size))
        else:
            tokens = torch.arange(size, device=logits.device).expand_as(logits)
        probs = (logits.double() / self.temperature).softmax(-1)
        cumulative = probs.cumsum(-1)
        if self.top_p < 1:
            probs = torch.where(cumulative - probs < self.top_p, probs, 0.0)
            cumulative = probs.cumsum(-1)
        threshold = uniform(make_key(self.keys, self.num_written))[..., None] * cumulative[..., -1:]
        index = torch.searchsorted(cumulative, threshold, right=True).clamp(max=tokens.shape[-1] - 1)
        return tokens.gather(-1, index)[..., 0]
