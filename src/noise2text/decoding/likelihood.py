"""Selection by likelihood: the candidate that another model finds likeliest (Difformer's released code).

    s* = argmax_{s ∈ C} log p_teacher(s | x) / |s|        (mean, the default)
    s* = argmax_{s ∈ C} log p_teacher(s | x)              (sum, which favours short texts)

|s| counts the teacher's tokens and the end. Or MBR in which every candidate counts by its likelihood a token,
instead of by 1; the judge may be the model itself (`noised.py`), which has no end to count:

    s* = argmax_{s ∈ C} Σ_{s′ ∈ C} p(s′ | x)^(1/|s′|) · u(s, s′)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noise2text.decoding.captured import batch_size, width
from noise2text.decoding.selection import MBR, Candidate
from noise2text.decoding.utilities import UTILITIES
from noise2text.networks.writer import Writer, shifted
from noise2text.problem import Problem
from noise2text.text.canvas import Canvas, Layout
from noise2text.text.rows import Rows

__all__ = ["Likelihood", "Measure", "Teacher", "Weighed", "log_likelihood", "log_likelihoods"]

FEWEST = 16
"""Rows of a rounded shape, at least: ten candidates, however many of them are equal, are one shape."""

Measure = Callable[[Canvas], Tensor]
"""What a model makes of given pairs of source and target: a value a pair, (B,)."""


class Teacher(Protocol):
    """A model that can say how likely a given text is."""

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False
    ) -> list[float]:
        """log p(target | text) of each pair, or its mean over the target's tokens."""


def log_likelihoods(
    measure: Measure,
    layout: Layout,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    shortest: int = 0,
    longest: int,
    batch: int,
    device: torch.device,
    most: tuple[int, int] | None = None,
) -> list[float]:
    """log p of each target, in batches of like lengths; −∞ for what cannot be written.

    That is a target below the shortest or above the longest, and all but nothing in answer to nothing.
    Recorded graphs want few shapes: with the `most` tokens of a source and of a target, shapes are rounded
    up, and the last pair of a batch stands in for missing ones.
    """
    if batch < 1:
        raise Problem(f"The batch must hold at least 1 pair, not {batch}.")
    result = [-math.inf if source or target else 0.0 for source, target in zip(sources, targets, strict=True)]
    order = [i for i, target in enumerate(targets) if sources[i] and shortest <= len(target) <= longest]
    order.sort(key=lambda i: (len(targets[i]), len(sources[i])))
    found = []  # on the device, which is not waited for until it has been asked everything
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        pairs = [[rows[i] for i in chosen] for rows in (sources, targets)]
        canvas = layout.canvas(*map(Rows.of, pairs)) if most is None else _rounded_up(layout, pairs, most)
        found.append(measure(canvas.to(device))[: len(chosen)])
    for i, value in zip(order, torch.cat(found).tolist() if found else [], strict=True):
        result[i] = value
    return result


def _rounded_up(layout: Layout, pairs: Sequence[list[Sequence[int]]], most: tuple[int, int]) -> Canvas:
    """The canvas of the pairs, of one of few shapes."""
    more = batch_size(max(FEWEST, len(pairs[0]))) - len(pairs[0])
    sources, targets = (Rows.of([*rows, *[rows[-1]] * more]) for rows in pairs)
    wide, long = (width(max(map(len, rows)), limit) for rows, limit in zip(pairs, most, strict=True))
    return layout.canvas(sources, targets, shape=(wide, long))


@torch.inference_mode()
def log_likelihood(writer: Writer, canvas: Canvas, *, bos: int, per_token: bool) -> Tensor:
    """log p of each row's target and its end, (B,), or its mean a token."""
    logits = writer(shifted(canvas.tokens, bos), writer.read(canvas.source)).float()
    picked = logits.gather(-1, canvas.tokens[..., None])[..., 0] - logits.logsumexp(-1)  # (B, L)
    total = torch.where(canvas.scored, picked, 0.0).sum(1)
    return total / canvas.scored.sum(1) if per_token else total


@dataclass(frozen=True)
class Likelihood:
    """The candidate that the teacher finds likeliest; of equals, the first."""

    teacher: Teacher
    by: str = "mean"

    def __post_init__(self) -> None:
        if self.by not in ("mean", "sum"):
            raise Problem(f"A likelihood is taken by mean or by sum, not by {self.by!r}.")

    @property
    def signature(self) -> str:
        """The rule and what it divides by."""
        return f"teacher|likelihood:{self.by}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the candidate with the highest likelihood."""
        return self.choose_all([candidates])[0]

    def choose_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The place of each sentence's likeliest candidate; equal texts are scored once."""
        values = _values(self.teacher, sentences, per_token=self.by == "mean")
        return [scores.index(max(scores)) for scores in values]


@dataclass(frozen=True)
class Weighed:
    """MBR in which every candidate counts by how likely the judge finds it, a token; of equals, the first.

    By the whole text's likelihood one candidate would decide alone: judges are surer than they are right.
    """

    judge: Teacher
    inner: MBR = field(default_factory=MBR)
    by: str = "judge"  # what the signature calls the judge

    @property
    def signature(self) -> str:
        """The rule, the judge, and MBR's own signature."""
        return f"weighed|by:{self.by}|likelihood:mean|{self.inner.signature}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the candidate with the highest expected utility."""
        return self.choose_all([candidates])[0]

    def choose_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The same for each sentence; equal texts are scored once, and count as often as they are there."""
        texts = [[each.text for each in candidates] for candidates in sentences]
        chosen = [0] * len(texts)
        divided = [at for at, own in enumerate(texts) if len(set(own)) > 1]
        values = _values(self.judge, [sentences[at] for at in divided], per_token=True)
        different = [list(dict.fromkeys(texts[at])) for at in divided]
        tables = UTILITIES[self.inner.utility].tables(different, candidate_is=self.inner.candidate_is)
        agreed = chain.from_iterable(_squares(block.values, block.sizes) for block in tables)
        for at, own, square, scores in zip(divided, different, agreed, values, strict=True):
            best = _best(square, texts[at], scores, self_pair=self.inner.self_pair)
            chosen[at] = texts[at].index(own[best])
        return chosen


def _best(
    square: NDArray[np.float64], texts: Sequence[str], scores: Sequence[float], *, self_pair: bool
) -> int:
    """The row of the different texts' utilities that is best where each counts by its likelihood."""
    known = dict(zip(texts, scores, strict=True))
    logs = np.array(list(known.values()))
    chances = np.exp(logs - logs.max()) if np.isfinite(logs.max()) else np.ones(len(logs))
    counts = Counter(texts)
    sums = square @ (chances * [counts[text] for text in known])
    if not self_pair:
        sums -= square.diagonal() * chances
    return int(sums.argmax())


def _squares(values: NDArray[np.float64], sizes: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    return [square[:size, :size] for square, size in zip(values, sizes.tolist(), strict=True)]


def _values(
    teacher: Teacher, sentences: Sequence[Sequence[Candidate]], *, per_token: bool
) -> list[list[float]]:
    """What the teacher says of every candidate; it is asked once about equal ones."""
    pairs = {(each.source, each.text): 0.0 for candidates in sentences for each in candidates}
    sources, texts = zip(*pairs, strict=True) if pairs else ((), ())
    pairs.update(zip(pairs, teacher.likelihood(sources, texts, per_token=per_token), strict=True))
    return [[pairs[each.source, each.text] for each in candidates] for candidates in sentences]
