"""Which of a sentence's candidates is given out: the safest one (MBR), or the likeliest.

Minimum Bayes risk (SeqDiffuSeq, eq. 27; Diffusion-LM) takes from the candidates C the one that the
others agree with most, the risk r being minus a utility u:

    s* = argmin_{s ∈ C} 1/|C| · Σ_{s′ ∈ C} r(s, s′),     r(s, s′) = −u(s, s′)

The sum runs over all of C, the candidate itself included. BLEU and its kin are not symmetric, so u's
direction matters: here, as in eq. 27 and DiffuSeq, the candidate s is the hypothesis and s′ the reference;
Difformer's code has them the other way round. The signature names all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from noise2text.core.errors import Problem
from noise2text.metrics.mbr_utilities import DIRECTIONS, UTILITIES, UtilityMatrices

__all__ = ["MBR", "BestScore", "Candidate", "Selector", "WithoutCopies"]


@dataclass(frozen=True)
class Candidate:
    """One finished text of a sentence; its score is the mean token log-probability plus the length's.

    Where candidates are weighed, it is their judge's: the mean of all of these.
    """

    text: str
    tokens: tuple[int, ...]
    score: float
    source: str = ""  # what the text is an answer to, for those that judge it by that


class Selector(Protocol):
    """A rule that selects one of a sentence's candidates; its signature says which rule.

    `Model.generate` takes one as `selector`. It is a protocol: any class with these methods is a selector.

    >>> from noise2text.generation.selection import Candidate
    >>> class Shortest:
    ...     signature = "shortest"
    ...     def __call__(self, candidates):
    ...         return min(range(len(candidates)), key=lambda i: len(candidates[i].text))
    ...     def select_all(self, sentences):
    ...         return [self(candidates) for candidates in sentences]
    >>> Shortest()([Candidate("a longer text", (5, 6, 7), 0.0), Candidate("a text", (5, 7), 0.0)])
    1
    """

    @property
    def signature(self) -> str:
        """The rule and everything that changes its choice."""
        ...

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the chosen candidate."""
        ...

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The place of each sentence's chosen candidate: the same, and faster than one by one."""
        ...


# Sums this close to the highest, as a share of it, are decided by the definition; arrays err by some 1e-14.
_TIE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class MBR:
    """The candidate with the least mean risk among all candidates (eq. 27); of equals, the first."""

    utility: str = "bleu"
    candidate_is: str = "hypothesis"  # "reference" in Difformer's released code
    self_pair: bool = True  # eq. 27 sums over all of C; False leaves the candidate's pair with itself out

    def __post_init__(self) -> None:
        _require(self.utility, UTILITIES, "utility")
        _require(self.candidate_is, DIRECTIONS, "candidate_is")

    @property
    def signature(self) -> str:
        """The utility, its direction, the self-pair and the utility's own definition."""
        own = "yes" if self.self_pair else "no"
        definition = UTILITIES[self.utility].signature
        return f"mbr|u:{self.utility}|candidate:{self.candidate_is}|self:{own}|{definition}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the candidate with the highest summed utility, which is the one of least mean risk."""
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The same for each sentence, all pairs of many sentences being compared at once."""
        if not all(sentences):
            raise ValueError("a sentence has no candidates to choose from")
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
            for at, row in zip(indices, self._rows(block, [text_counts[at] for at in indices]), strict=True):
                chosen[at] = texts[at].index(list(text_counts[at])[row])
        return chosen

    def _rows(self, utility_matrices: UtilityMatrices, text_counts: Sequence[Counter[str]]) -> list[int]:
        """Each sentence's row with the highest sum, a column counting as often as its text has copies."""
        width = utility_matrices.values.shape[1]
        real = np.arange(width) < utility_matrices.sizes[:, None]  # (S, C)
        weights = np.zeros((len(text_counts), 1, width))
        weights[:, 0][real] = list(chain.from_iterable(counted.values() for counted in text_counts))
        weights = weights - (not self.self_pair) * np.eye(width)  # (S, C, C)
        sums = (utility_matrices.values * weights).sum(-1)
        tied = real & (sums >= sums.max(1, keepdims=True) * (1 - _TIE_TOLERANCE))
        rows: list[int] = tied.argmax(1).tolist()
        for at in np.flatnonzero(tied.sum(1) > 1).tolist():
            exact = partial(_exact_sum, utility_matrices, weights, at)
            rows[at] = max(np.flatnonzero(tied[at]).tolist(), key=exact)  # of equals, the first
        return rows


def _exact_sum(
    utility_matrices: UtilityMatrices, weights: NDArray[np.float64], sentence: int, row: int
) -> float:
    counts = weights[sentence, row].astype(int).tolist()
    return math.fsum(chain.from_iterable(map(repeat, utility_matrices.exact(sentence, row), counts)))


@dataclass(frozen=True)
class BestScore:
    """The candidate that the model itself scores highest; of equals, the first."""

    @property
    def signature(self) -> str:
        """The rule's name."""
        return "score"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the candidate with the highest score."""
        scores = [candidate.score for candidate in candidates]
        return scores.index(max(scores))

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The place of each sentence's candidate with the highest score."""
        return [self(candidates) for candidates in sentences]


@dataclass(frozen=True)
class WithoutCopies:
    """Another selector that is not shown copies of the source, unless there is nothing else to show."""

    selector: Selector

    @property
    def signature(self) -> str:
        """The other's, and what it is not shown."""
        return f"novel|{self.selector.signature}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the chosen candidate among all of them."""
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The place of each sentence's chosen candidate."""
        indices = [_find_non_copies(candidates) or list(range(len(candidates))) for candidates in sentences]
        remaining = [[each[i] for i in own] for each, own in zip(sentences, indices, strict=True)]
        return [own[at] for own, at in zip(indices, self.selector.select_all(remaining), strict=True)]


def _find_non_copies(candidates: Sequence[Candidate]) -> list[int]:
    """The places of those that say something else than their source; case and spaces are not else."""
    return [i for i, each in enumerate(candidates) if _normalize(each.text) != _normalize(each.source)]


def _normalize(text: str) -> list[str]:
    return text.casefold().split()


def _require(name: str, known: Collection[str], setting: str) -> None:
    if name not in known:
        raise Problem(f"{setting} {name!r} is unknown: choose one of {', '.join(known)}")
