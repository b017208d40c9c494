"""Reranking: the candidate that a teacher model finds likeliest (Difformer's released code).

    s* = argmax_{s ∈ C} log p_teacher(s | x) / |s|        (mean, the default)
    s* = argmax_{s ∈ C} log p_teacher(s | x)              (sum, which favours short texts)

|s| is the number of the teacher's tokens, the end included.
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
"""From given pairs of source and target to one value per pair, (B,)."""


class HasLikelihood(Protocol):
    """A model that can compute the likelihood of a given text."""

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False
    ) -> list[float]:
        """log p(target | text) of each pair, or its mean over the tokens of the target."""


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
    """log p of each target; −∞ for a target that the model cannot generate.

    Those are targets that are too short or too long, and non-empty targets of empty sources. Pairs of similar
    lengths are scored together.
    """
    if batch < 1:
        raise Problem(f"The setting batch must be at least 1 pair, not {batch}.")
    result = [-math.inf if source or target else 0.0 for source, target in zip(sources, targets, strict=True)]
    order = [i for i, target in enumerate(targets) if sources[i] and min_length <= len(target) <= max_length]
    order.sort(key=lambda i: (len(targets[i]), len(sources[i])))
    found = []  # stays on the device, which is waited for only once
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
    """log p (B,) of the target and its end in each row, or the mean per token."""
    logits = network(shift_right(canvas.tokens, bos), network.encode(canvas.source)).float()
    log_probs = logits.gather(-1, canvas.tokens[..., None])[..., 0] - logits.logsumexp(-1)  # (B, L)
    total = torch.where(canvas.scored, log_probs, 0.0).sum(1)
    return total / canvas.scored.sum(1) if per_token else total


def require_reduction(reduction: str) -> None:
    """Raise a Problem unless the reduction is mean or sum."""
    if reduction not in ("mean", "sum"):
        raise Problem(f"The likelihood is a mean or a sum over tokens: give mean or sum, not {reduction!r}.")


@dataclass(frozen=True)
class LikelihoodSelector:
    """The candidate that the teacher finds likeliest; ties go to the first."""

    teacher: HasLikelihood
    reduction: str = "mean"

    def __post_init__(self) -> None:
        require_reduction(self.reduction)

    @property
    def signature(self) -> str:
        """The rule and its reduction."""
        return f"teacher|likelihood:{self.reduction}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The index of the candidate with the highest likelihood."""
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The index of the likeliest candidate of each sentence."""
        values = _score_candidates(self.teacher, sentences, per_token=self.reduction == "mean")
        return [scores.index(max(scores)) for scores in values]


def _score_candidates(
    teacher: HasLikelihood, sentences: Sequence[Sequence[Candidate]], *, per_token: bool
) -> list[list[float]]:
    """The likelihood of every candidate; equal ones are scored once."""
    pairs = {(each.source, each.text): 0.0 for candidates in sentences for each in candidates}
    sources, texts = zip(*pairs, strict=True) if pairs else ((), ())
    pairs.update(zip(pairs, teacher.likelihood(sources, texts, per_token=per_token), strict=True))
    return [[pairs[each.source, each.text] for each in candidates] for candidates in sentences]
