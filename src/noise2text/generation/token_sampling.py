"""Hypotheses that go on alone: greedy search, and texts that are drawn from softmax(logits / temperature).

Top-k leaves the k likeliest tokens (Fan et al., 2018), top-p the fewest whose probabilities reach p
(Holtzman et al., 2020); both leave the rest's proportions alone. A number in [0, 1) a token, from the key
of the text and the position, picks by the cumulated probabilities: the text depends on neither the batch
nor the other samples.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from noise2text.core.random import key, uniform
from noise2text.generation.search import Rules, Search, surprise

__all__ = ["Greedy", "Sampling"]


class _Alone(Search):
    """Hypotheses that go on by themselves, each until it writes its end."""

    def __init__(self, shape: tuple[int, int], *, rules: Rules, length_penalty: float, device: torch.device):
        self.hypotheses, self.rules, self.length_penalty = shape[1], rules, length_penalty
        self.count = torch.zeros(1, dtype=torch.long, device=device)
        self.scores = torch.zeros(shape, device=device)
        self.lengths = torch.zeros(shape, dtype=torch.long, device=device)
        self.ended = torch.zeros(shape, dtype=torch.bool, device=device)
        self.written = torch.full((*shape, rules.longest + 1), rules.pad, device=device)

    @abstractmethod
    def pick(self, logits: Tensor) -> Tensor:
        """The next token (B, K) of each row of logits (B, K, V)."""

    def choose(self, logits: Tensor) -> tuple[Tensor, None]:
        logits, normaliser = surprise(logits, self.rules, self.count)
        tokens = torch.where(self.count == self.rules.longest, self.rules.eos, self.pick(logits))
        gained = logits.gather(-1, tokens[..., None]) - normaliser
        self.scores.add_(torch.where(self.ended, 0.0, gained[..., 0]))
        self.lengths.add_(~self.ended)
        tokens = torch.where(self.ended, self.rules.pad, tokens)
        self.written.index_copy_(2, self.count, tokens[..., None])
        self.ended |= tokens == self.rules.eos
        self.count.add_(1)
        return tokens, None

    def over(self) -> Tensor:
        return self.ended.all()

    def result(self) -> tuple[Tensor, Tensor]:
        return self.written, self.scores / self.lengths**self.length_penalty


class Greedy(_Alone):
    """One text a sentence, always on with the likeliest token: a beam of 1 with less to do."""

    def __init__(self, sentences: int, *, rules: Rules, length_penalty: float, device: torch.device) -> None:
        super().__init__((sentences, 1), rules=rules, length_penalty=length_penalty, device=device)

    def pick(self, logits: Tensor) -> Tensor:
        return logits.argmax(-1)


class Sampling(_Alone):
    """As many texts a sentence as there are keys (B, K) for it, drawn one token after the other."""

    def __init__(
        self,
        keys: Tensor,
        *,
        rules: Rules,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        length_penalty: float = 1.0,
    ) -> None:
        """`top_k` = 0 leaves all tokens."""
        shape = (keys.shape[0], keys.shape[1])
        super().__init__(shape, rules=rules, length_penalty=length_penalty, device=keys.device)
        self.keys, self.temperature, self.top_k, self.top_p = keys, temperature, top_k, top_p

    def pick(self, logits: Tensor) -> Tensor:
        size = logits.shape[-1]
        if self.top_k or self.top_p < 1:
            logits, tokens = logits.topk(min(self.top_k or size, size))
        else:
            tokens = torch.arange(size, device=logits.device).expand_as(logits)
        chances = (logits.double() / self.temperature).softmax(-1)
        reached = chances.cumsum(-1)
        if self.top_p < 1:
            chances = torch.where(reached - chances < self.top_p, chances, 0.0)
            reached = chances.cumsum(-1)
        picked = uniform(key(self.keys, self.count))[..., None] * reached[..., -1:]
        place = torch.searchsorted(reached, picked, right=True).clamp(max=tokens.shape[-1] - 1)
        return tokens.gather(-1, place)[..., 0]
