"""Alternatives: different texts for one sentence, best first, none far less likely than the likeliest.

    a₁ = the selected candidate,    aₖ₊₁ = argmax_s A(s) − λ · max_{j ≤ k} u(s, aⱼ)

A(s) is how well a candidate agrees with all candidates, the expected utility of weighted MBR:

    A(s) = Σ_{s′} w(s′) · u(s, s′),     w(s′) ∝ p(s′ | x)^(1/|s′|),     u = sentence BLEU

So what many candidates say comes early, and what an earlier alternative says already comes late (maximal
marginal relevance; Carbonell and Goldstein, 1998). Where a model selects by its score, A(s) is the score and
λ is 0: a beam search knows the likelihood of its texts, diffusion has only an estimate.

Left out are texts that differ from an earlier one only in case, punctuation and spaces, and those whose score
is more than `floor` below the highest. Scores are log-probabilities per token. More candidates than
alternatives are needed: most noises of a length lead to few different texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from noise2text.core.errors import Problem
from noise2text.generation.mbr import MBR
from noise2text.generation.selection import (
    Candidate,
    CandidateFilter,
    ComparesCandidates,
    Selector,
    WrapsSelector,
)
from noise2text.generation.weighted_mbr import weigh_candidates
from noise2text.metrics.alternatives import normalize_words

__all__ = ["FLOOR", "draw_enough_candidates", "rank_alternatives", "rank_by_agreement", "rank_by_score"]

FLOOR = 1.5
"""The default floor; `docs/guides/diversity.md` shows what it does."""
REDUNDANCY_WEIGHT = 0.2
"""λ, the weight of what earlier alternatives say already; `docs/notebook/alternatives.md` has the search."""
CANDIDATES_PER_ALTERNATIVE = 4
BEAM_SETTINGS = {"noise_beam", "length_beam", "beam", "samples"}


def rank_alternatives(
    selector: Selector, candidates: Sequence[Candidate], selected: int, *, n: int, floor: float = FLOOR
) -> list[int]:
    """The indices of at most n alternatives, of the candidates that the selector's filters keep.

    They are ranked by agreement if the selector compares candidates, as MBR does, and by score if not.
    """
    if n == 1:
        return [selected]
    kept = list(range(len(candidates)))
    while isinstance(selector, WrapsSelector):
        if isinstance(selector, CandidateFilter):
            kept = [kept[i] for i in selector.keep_any([candidates[i] for i in kept])]
        selector = selector.selector
    rank = rank_by_agreement if isinstance(selector, ComparesCandidates) else rank_by_score
    ranked = rank([candidates[i] for i in kept], kept.index(selected), n=n, floor=floor)
    return [kept[i] for i in ranked]


def rank_by_agreement(
    candidates: Sequence[Candidate],
    selected: int,
    *,
    n: int,
    floor: float = FLOOR,
    mbr: MBR | None = None,
    redundancy_weight: float = REDUNDANCY_WEIGHT,
) -> list[int]:
    """The selected candidate, then those that agree most with all and least with the alternatives so far.

    >>> texts = ["She was very tired.", "She was very tired!", "She was so tired.", "He lost his keys."]
    >>> rank_by_agreement([Candidate(text, (), 0.0) for text in texts], 0, n=3)
    [0, 2, 3]
    """
    utilities = np.array((mbr or MBR()).utilities(candidates))  # (C, C)
    weights = weigh_candidates(candidates)
    agreement = utilities @ (weights / weights.sum())  # (C,)
    similarity = (utilities + utilities.T) / 2
    order = sorted(_reach_floor(candidates, floor), key=lambda i: -agreement[i])
    waiting = _keep_different(candidates, selected, order)[1:]
    ranked, redundancy = [selected], similarity[selected]
    while waiting and len(ranked) < n:
        best = max(waiting, key=lambda i: agreement[i] - redundancy_weight * redundancy[i])
        waiting.remove(best)
        ranked.append(best)
        redundancy = np.maximum(redundancy, similarity[best])
    return ranked


def rank_by_score(
    candidates: Sequence[Candidate], selected: int, *, n: int, floor: float = FLOOR
) -> list[int]:
    """The selected candidate, then those of the highest scores."""
    order = sorted(_reach_floor(candidates, floor), key=lambda i: -candidates[i].score)
    return _keep_different(candidates, selected, order)[:n]


def _reach_floor(candidates: Sequence[Candidate], floor: float) -> list[int]:
    """The candidates that are at most `floor` less likely than the likeliest; all, if none is possible."""
    scores = [candidate.score for candidate in candidates]
    lowest = max(scores) - floor if math.isfinite(max(scores)) else -math.inf
    return [i for i, score in enumerate(scores) if score >= lowest]


def _keep_different(candidates: Sequence[Candidate], selected: int, order: Iterable[int]) -> list[int]:
    """The selected candidate and, in this order, the first of those with the same words."""
    different = {normalize_words(candidates[selected].text): selected}
    for i in order:
        different.setdefault(normalize_words(candidates[i].text), i)
    return list(different.values())


def draw_enough_candidates(config: Any, overrides: Mapping[str, Any], *, n: int, floor: float) -> Any:
    """The generation config with enough candidates for `n` alternatives, unless the overrides set a beam."""
    if n < 1:
        raise Problem(f"The number of alternatives, n, must be at least 1, not {n}.")
    if not floor >= 0:
        raise Problem(f"The floor is how far a score may be below the best: at least 0, not {floor}.")
    if n == 1 or BEAM_SETTINGS & set(overrides) or not hasattr(config, "with_candidates"):
        return config
    return config.with_candidates(n, per_text=CANDIDATES_PER_ALTERNATIVE)
