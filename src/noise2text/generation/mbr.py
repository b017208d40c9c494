"""Minimum Bayes risk (SeqDiffuSeq, eq. 27; Diffusion-LM): the candidate that agrees most with the others.

The risk r is minus a utility u (`metrics/mbr_utilities.py`):

    s* = argmin_{s ∈ C} 1/|C| · Σ_{s′ ∈ C} r(s, s′),     r(s, s′) = −u(s, s′)

The sum is over all of C, the candidate itself included. BLEU and similar utilities are not symmetric, so the
direction of u matters: here, as in eq. 27 and DiffuSeq, the candidate s is the hypothesis and s′ the
reference; Difformer's code has them the other way round. The signature states all of this.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

import numpy as np

from noise2text.core.errors import Problem
from noise2text.generation.selection import Candidate
from noise2text.metrics.mbr_utilities import DIRECTIONS, UTILITIES, UtilityMatrices

__all__ = ["MBR"]

# Sums within this share of the highest are computed again exactly; the error of the arrays is about 1e-14.
_TIE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class MBR:
    """The candidate of least mean risk (SeqDiffuSeq, eq. 27); ties go to the first."""

    utility: str = "bleu"
    candidate_is: str = "hypothesis"  # "reference" in Difformer's released code
    self_pair: bool = True  # SeqDiffuSeq's eq. 27 has it; False leaves out a candidate's pair with itself

    def __post_init__(self) -> None:
        for setting, known in (("utility", UTILITIES), ("candidate_is", DIRECTIONS)):
            if getattr(self, setting) not in known:
                raise Problem(
                    f"The {setting} {getattr(self, setting)!r} is unknown: choose one of {', '.join(known)}."
                )

    @property
    def signature(self) -> str:
        """The utility, its direction, whether self-pairs count, and the definition of the utility."""
        own = "yes" if self.self_pair else "no"
        definition = UTILITIES[self.utility].signature
        return f"mbr|u:{self.utility}|candidate:{self.candidate_is}|self:{own}|{definition}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The index of the candidate with the highest summed utility, that is, the least mean risk."""
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The index of that candidate for each sentence; all pairs of many sentences are compared at once."""
        if not all(sentences):
            raise ValueError("A sentence has no candidates: give at least one to select from.")
        texts = [[candidate.text for candidate in candidates] for candidates in sentences]
        text_counts = [Counter(each) for each in texts]
        chosen = [0] * len(texts)
        undecided = [at for at, counted in enumerate(text_counts) if len(counted) > 1]
        utility_matrices = UTILITIES[self.utility].utility_matrices(
            [list(text_counts[at]) for at in undecided], candidate_is=self.candidate_is
        )
        waiting = iter(undecided)
        for block in utility_matrices:
            indices = list(islice(waiting, len(block.sizes)))
            rows = self._find_best_rows(block, [text_counts[at] for at in indices])
            for at, row in zip(indices, rows, strict=True):
                chosen[at] = texts[at].index(list(text_counts[at])[row])
        return chosen

    def utilities(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """The utility of each candidate (row) against each (column); a self-pair that does not count is 0."""
        texts = list(dict.fromkeys(candidate.text for candidate in candidates))
        (block,) = UTILITIES[self.utility].utility_matrices([texts], candidate_is=self.candidate_is)
        indices = [texts.index(candidate.text) for candidate in candidates]
        matrix = block.values[0][np.ix_(indices, indices)]  # (C, C)
        return (matrix if self.self_pair else matrix * (1 - np.eye(len(matrix)))).tolist()

    def _find_best_rows(
        self, utility_matrices: UtilityMatrices, text_counts: Sequence[Counter[str]]
    ) -> list[int]:
        """The row with the highest sum for each sentence; a column counts once per copy of its text."""
        width = utility_matrices.values.shape[1]
        real = np.arange(width) < utility_matrices.sizes[:, None]  # (S, C)
        weights = np.zeros((len(text_counts), 1, width))
        weights[:, 0][real] = list(chain.from_iterable(counted.values() for counted in text_counts))
        weights = weights - (not self.self_pair) * np.eye(width)  # (S, C, C)
        sums = (utility_matrices.values * weights).sum(-1)
        tied = real & (sums >= sums.max(1, keepdims=True) * (1 - _TIE_TOLERANCE))
        rows: list[int] = tied.argmax(1).tolist()
        for at in np.flatnonzero(tied.sum(1) > 1).tolist():
            exact_sums: dict[int, float] = {}
            for row in np.flatnonzero(tied[at]).tolist():
                counts = weights[at, row].astype(int).tolist()
                utilities = map(repeat, utility_matrices.exact(at, row), counts)
                exact_sums[row] = math.fsum(chain.from_iterable(utilities))
            rows[at] = max(exact_sums, key=exact_sums.__getitem__)  # ties go to the first
        return rows
