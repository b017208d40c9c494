"""Alternatives: different texts for one sentence, best first, none far less likely than the likeliest.

    a₁ = the selected candidate,    a₂, a₃, … = the others, from the highest score to the lowest,

without those that differ from an earlier one only in case, punctuation and spaces, and without those whose
score is more than `floor` below the highest. Scores are log-probabilities per token. More candidates than
alternatives are needed: most noises of a length lead to few different texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from noise2text.core.errors import Problem
from noise2text.generation.selection import Candidate
from noise2text.metrics.alternatives import normalize_words

__all__ = ["FLOOR", "draw_enough_candidates", "rank_alternatives"]

FLOOR = 1.5
"""The default floor; `docs/guides/diversity.md` shows how it was chosen."""
CANDIDATES_PER_ALTERNATIVE = 4
BEAM_SETTINGS = {"noise_beam", "length_beam", "beam", "samples"}


def rank_alternatives(
    candidates: Sequence[Candidate], selected: int, *, n: int, floor: float = FLOOR
) -> list[int]:
    """The indices of at most `n` different candidates: the selected one, then those of the highest scores."""
    scores = [candidate.score for candidate in candidates]
    lowest = max(scores) - floor if math.isfinite(max(scores)) else -math.inf
    order = sorted(range(len(candidates)), key=lambda i: -scores[i])
    different: dict[str, int] = {normalize_words(candidates[selected].text): selected}
    for i in order:
        if scores[i] >= lowest:
            different.setdefault(normalize_words(candidates[i].text), i)
    return list(different.values())[:n]


def draw_enough_candidates(config: Any, overrides: Mapping[str, Any], *, n: int, floor: float) -> Any:
    """The generation config with enough candidates for `n` alternatives, unless the overrides set a beam."""
    if n < 1:
        raise Problem(f"The number of alternatives, n, must be at least 1, not {n}.")
    if not floor >= 0:
        raise Problem(f"The floor is how far a score may be below the best: at least 0, not {floor}.")
    if n == 1 or BEAM_SETTINGS & set(overrides) or not hasattr(config, "with_candidates"):
        return config
    return config.with_candidates(CANDIDATES_PER_ALTERNATIVE * n)
