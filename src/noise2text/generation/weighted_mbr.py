"""MBR in which every candidate is weighted by its likelihood per token:

    s* = argmax_{s ∈ C} Σ_{s′ ∈ C} p(s′ | x)^(1/|s′|) · u(s, s′)

The score of a candidate is the logarithm of its weight. With the likelihood of the whole text, one candidate
would have nearly all of the weight: models are overconfident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from noise2text.generation.mbr import MBR
from noise2text.generation.selection import Candidate
from noise2text.metrics.mbr_utilities import UTILITIES, UtilityMatrices

__all__ = ["WeightedMBR", "weigh_candidates"]


@dataclass(frozen=True)
class WeightedMBR:
    """The candidate with the highest expected utility, weighted by the scores; ties go to the first."""

    mbr: MBR = field(default_factory=MBR)
    score_name: str = "score"  # the name of the scores in the signature

    @property
    def signature(self) -> str:
        """The rule, the name of the scores, and the signature of MBR."""
        return f"weighted-mbr|by:{self.score_name}|likelihood:mean|{self.mbr.signature}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The index of the candidate with the highest expected utility."""
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The index of that candidate for each sentence; all pairs of many sentences are compared at once."""
        chosen = [0] * len(sentences)
        texts = [list(dict.fromkeys(each.text for each in candidates)) for candidates in sentences]
        undecided = [at for at, different in enumerate(texts) if len(different) > 1]
        utility_matrices = UTILITIES[self.mbr.utility].utility_matrices(
            [texts[at] for at in undecided], candidate_is=self.mbr.candidate_is
        )
        for at, matrix in zip(undecided, chain.from_iterable(map(_unpad, utility_matrices)), strict=True):
            chosen[at] = self._best(sentences[at], texts[at], matrix)
        return chosen

    def utilities(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """MBR's utilities, each column times its candidate's weight; the weights have mean 1."""
        weights = weigh_candidates(candidates)
        return (np.array(self.mbr.utilities(candidates)) * (weights / weights.mean())).tolist()

    def _best(
        self, candidates: Sequence[Candidate], texts: Sequence[str], matrix: NDArray[np.float64]
    ) -> int:
        """The index of the best candidate, given the utilities of the different texts."""
        weights = weigh_candidates(candidates)
        text_weights: dict[str, float] = defaultdict(float)
        for each, weight in zip(candidates, weights.tolist(), strict=True):
            text_weights[each.text] += weight
        rows = {text: row for row, text in enumerate(texts)}
        indices = np.array([rows[each.text] for each in candidates])
        sums = (matrix @ [text_weights[text] for text in texts])[indices]
        if not self.mbr.self_pair:
            sums = sums - matrix.diagonal()[indices] * weights
        return int(sums.argmax())


def weigh_candidates(candidates: Sequence[Candidate]) -> NDArray[np.float64]:
    """The weight of each candidate, 1 for the likeliest."""
    scores = np.array([each.score for each in candidates])
    highest = scores.max()
    return np.exp(scores - highest) if np.isfinite(highest) else np.ones(len(scores))


def _unpad(utility_matrices: UtilityMatrices) -> list[NDArray[np.float64]]:
    return [
        matrix[:size, :size]
        for matrix, size in zip(utility_matrices.values, utility_matrices.sizes.tolist(), strict=True)
    ]
