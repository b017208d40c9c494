"""How likely a model finds given texts: a bound of −log p from above, in nats per token and term by term.

The terms of diffusion models are those of `diffusion/variational_bound.py`, and `length`, −log p of the
length where a model predicts it. An autoregressive model has the single term `tokens`, and its bound is
exact. Nats are divided by the tokens of the targets and one more per target: its end, or its length. So
models with the same tokenizer can be compared, whether they predict the length or generate an end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from noise2text.core.errors import Problem

__all__ = ["LikelihoodBound", "TimeInterval", "summarize_pairs"]


@dataclass(frozen=True)
class TimeInterval:
    """The part of the term `diffusion` from the time `start` down to the time `end`."""

    start: float
    end: float
    nats_per_token: float


@dataclass(frozen=True)
class LikelihoodBound:
    """−log p(target | source) of a corpus, from above.

    Fields:
        terms: nats per token, by the name of the term; they sum to `nats_per_token`.
        is_exact: whether this is −log p itself and not a bound.
        standard_error: of nats_per_token, over the pairs; None for fewer than two pairs.
        pair_nats: the nats of every pair; inf for targets that the model cannot generate.
        num_tokens: the tokens of the targets, with one more for each end or length.
        num_skipped: targets that the model cannot generate, which do not count: they are empty or too long.
        intervals: the term `diffusion` by time; empty where there is none.
        signature: how the numbers were made.
    """

    terms: Mapping[str, float]
    is_exact: bool
    standard_error: float | None
    pair_nats: tuple[float, ...]
    num_tokens: int
    num_skipped: int
    intervals: tuple[TimeInterval, ...]
    signature: str

    @property
    def nats_per_token(self) -> float:
        """The sum of the terms."""
        return sum(self.terms.values())

    @property
    def perplexity(self) -> float:
        """exp(nats per token); inf where that is too large for a number."""
        return math.exp(self.nats_per_token) if self.nats_per_token < 700 else math.inf

    def as_json(self) -> dict[str, Any]:
        """Everything, ready for JSON; null in place of an infinite number."""
        facts = asdict(self) | {"nats_per_token": self.nats_per_token}
        facts["pair_nats"] = [nats if math.isfinite(nats) else None for nats in self.pair_nats]
        return facts | {"perplexity": self.perplexity if math.isfinite(self.perplexity) else None}


def summarize_pairs(
    pair_terms: Sequence[Mapping[str, float] | None],
    token_counts: Sequence[int],
    *,
    is_exact: bool,
    signature: str,
    intervals: Sequence[TimeInterval] = (),
) -> LikelihoodBound:
    """The bound of a corpus from the terms of each pair; None is a pair that the model cannot generate."""
    counted = [(terms, count) for terms, count in zip(pair_terms, token_counts, strict=True) if terms]
    if not counted:
        raise Problem(
            "The model can generate none of these targets, so there is no likelihood: give pairs whose "
            "sources are not empty and whose targets are within the model's max_target."
        )
    num_tokens = sum(count for _, count in counted)
    names = list(dict.fromkeys(name for terms, _ in counted for name in terms))
    means = {name: sum(terms[name] for terms, _ in counted) / num_tokens for name in names}
    pair_nats = tuple(math.inf if terms is None else sum(terms.values()) for terms in pair_terms)
    rate = sum(means.values())
    residuals = [sum(terms.values()) - rate * count for terms, count in counted]
    error = None
    if len(counted) > 1:  # of a ratio of two sums over pairs
        spread = sum(residual**2 for residual in residuals) * len(counted) / (len(counted) - 1)
        error = math.sqrt(spread) / num_tokens
    return LikelihoodBound(
        terms=means,
        is_exact=is_exact,
        standard_error=error,
        pair_nats=pair_nats,
        num_tokens=num_tokens,
        num_skipped=len(pair_terms) - len(counted),
        intervals=tuple(intervals),
        signature=signature,
    )
