"""Selection by likelihood: the candidate that another model finds likeliest (Difformer's released code).

    s* = argmax_{s ∈ C} log p_teacher(s | x) / |s|        (mean, the default)
    s* = argmax_{s ∈ C} log p_teacher(s | x)              (sum, which favours short texts)

|s| counts the teacher's tokens and the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.data.ragged import RaggedRows
from noise2text.generation.selection import Candidate
from noise2text.nn.autoregressive import AutoregressiveNetwork, shift_right

__all__ = [
    "HasLikelihood",
    "LikelihoodSelector",
    "ScorePairs",
    "autoregressive_log_likelihood",
    "batched_log_likelihoods",
    "require_reduction",
]

ScorePairs = Callable[[Canvas], Tensor]
"""What a model makes of given pairs of source and target: a value a pair, (B,)."""


class HasLikelihood(Protocol):
    """A model that can say how likely a given text is."""

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False
    ) -> list[float]:
        """log p(target | text) of each pair, or its mean over the target's tokens."""


def batched_log_likelihoods(
    score_pairs: ScorePairs,
    layout: Layout,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    min_length: int = 0,
    max_length: int,
    batch: int,
    device: torch.device,
) -> list[float]:
    """log p of each target, in batches of like lengths; −∞ for what cannot be written.

    That is a target below the shortest or above the longest, and all but nothing in answer to nothing.
    """
    if batch < 1:
        raise Problem(f"The batch must hold at least 1 pair, not {batch}.")
    result = [-math.inf if source or target else 0.0 for source, target in zip(sources, targets, strict=True)]
    order = [i for i, target in enumerate(targets) if sources[i] and min_length <= len(target) <= max_length]
    order.sort(key=lambda i: (len(targets[i]), len(sources[i])))
    found = []  # on the device, which is not waited for until it has been asked everything
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        pairs = (RaggedRows.from_lists([rows[i] for i in chosen]) for rows in (sources, targets))
        found.append(score_pairs(layout.make_canvas(*pairs).to(device)))
    for i, value in zip(order, torch.cat(found).tolist() if found else [], strict=True):
        result[i] = value
    return result


@torch.inference_mode()
def autoregressive_log_likelihood(
    network: AutoregressiveNetwork, canvas: Canvas, *, bos: int, per_token: bool
) -> Tensor:
    """log p of each row's target and its end, (B,), or its mean a token."""
    logits = network(shift_right(canvas.tokens, bos), network.encode(canvas.source)).float()
    picked = logits.gather(-1, canvas.tokens[..., None])[..., 0] - logits.logsumexp(-1)  # (B, L)
    total = torch.where(canvas.scored, picked, 0.0).sum(1)
    return total / canvas.scored.sum(1) if per_token else total


def require_reduction(reduction: str) -> None:
    """Refuse what is no way to take a likelihood."""
    if reduction not in ("mean", "sum"):
        raise Problem(f"A likelihood is taken by mean or by sum, not by {reduction!r}.")


@dataclass(frozen=True)
class LikelihoodSelector:
    """The candidate that the teacher finds likeliest; of equals, the first."""

    teacher: HasLikelihood
    reduction: str = "mean"

    def __post_init__(self) -> None:
        require_reduction(self.reduction)

    @property
    def signature(self) -> str:
        """The rule and what it divides by."""
        return f"teacher|likelihood:{self.reduction}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the candidate with the highest likelihood."""
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The place of each sentence's likeliest candidate; equal texts are scored once."""
        values = _score_candidates(self.teacher, sentences, per_token=self.reduction == "mean")
        return [scores.index(max(scores)) for scores in values]


def _score_candidates(
    teacher: HasLikelihood, sentences: Sequence[Sequence[Candidate]], *, per_token: bool
) -> list[list[float]]:
    """What the teacher says of every candidate; it is asked once about equal ones."""
    pairs = {(each.source, each.text): 0.0 for candidates in sentences for each in candidates}
    sources, texts = zip(*pairs, strict=True) if pairs else ((), ())
    pairs.update(zip(pairs, teacher.likelihood(sources, texts, per_token=per_token), strict=True))
    return [[pairs[each.source, each.text] for each in candidates] for candidates in sentences]
