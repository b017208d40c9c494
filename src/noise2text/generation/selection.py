"""Selection among the candidates of a sentence: the one of minimum Bayes risk (MBR), or the likeliest.

Minimum Bayes risk (SeqDiffuSeq, eq. 27; Diffusion-LM) selects the candidate of C that agrees most with the
others. The risk r is minus a utility u:

    s* = argmin_{s ∈ C} 1/|C| · Σ_{s′ ∈ C} r(s, s′),     r(s, s′) = −u(s, s′)

The sum is over all of C, the candidate itself included. BLEU and similar utilities are not symmetric, so the
direction of u matters: here, as in eq. 27 and DiffuSeq, the candidate s is the hypothesis and s′ the
reference; Difformer's code has them the other way round. The signature states all of this.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from noise2text.core.errors import Problem
from noise2text.metrics.mbr_utilities import DIRECTIONS, UTILITIES, UtilityMatrices

__all__ = [
    "MBR",
    "BestScore",
    "Candidate",
    "CandidateFilter",
    "ComparesCandidates",
    "Selector",
    "WithoutCopies",
    "WrapsSelector",
    "compare_candidates",
]


@dataclass(frozen=True)
class Candidate:
    """One text for a sentence. What its score is depends on the model.

    - A diffusion model: the mean log-probability of the tokens, plus that of the length if it is predicted.
      With weighted MBR: the denoising likelihood per token, the length's log-probability included.
    - An autoregressive model: log p(y | x) / |y|^a with the length penalty a.
    """

    text: str
    tokens: tuple[int, ...]
    score: float
    source: str = ""  # the input text, for selectors that need it


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
        """The rule and all settings that change its choice."""
        ...

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The index of the selected candidate."""
        ...

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The index of the selected candidate of each sentence; faster than one call per sentence."""
        ...


@runtime_checkable
class ComparesCandidates(Protocol):
    """A selector that compares every candidate with every other one, and can show how they agree."""

    def utilities(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """The utility of each candidate (row) against each (column); the highest row mean is selected.

        A pair that does not count is 0.
        """
        ...


@runtime_checkable
class WrapsSelector(Protocol):
    """A selector that leaves the choice to another one."""

    @property
    def selector(self) -> Selector:
        """The selector that chooses."""
        ...


def compare_candidates(selector: Selector, candidates: Sequence[Candidate]) -> list[list[float]]:
    """The utility of each candidate (row) against each (column); empty if the selector compares none."""
    return selector.utilities(candidates) if isinstance(selector, ComparesCandidates) else []


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
            for at, row in zip(indices, self._rows(block, [text_counts[at] for at in indices]), strict=True):
                chosen[at] = texts[at].index(list(text_counts[at])[row])
        return chosen

    def utilities(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """The utility of each candidate (row) against each (column); a self-pair that does not count is 0."""
        texts = list(dict.fromkeys(candidate.text for candidate in candidates))
        (block,) = UTILITIES[self.utility].utility_matrices([texts], candidate_is=self.candidate_is)
        indices = [texts.index(candidate.text) for candidate in candidates]
        matrix = block.values[0][np.ix_(indices, indices)]  # (C, C)
        return (matrix if self.self_pair else matrix * (1 - np.eye(len(matrix)))).tolist()

    def _rows(self, utility_matrices: UtilityMatrices, text_counts: Sequence[Counter[str]]) -> list[int]:
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


@dataclass(frozen=True)
class BestScore:
    """The candidate with the highest score; ties go to the first."""

    @property
    def signature(self) -> str:
        """The name of the rule."""
        return "score"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The index of the candidate with the highest score."""
        scores = [candidate.score for candidate in candidates]
        return scores.index(max(scores))

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The index of the candidate with the highest score for each sentence."""
        return [self(candidates) for candidates in sentences]


@dataclass(frozen=True)
class CandidateFilter(ABC):
    """Another selector, for some of the candidates; for all, if the filter keeps none."""

    selector: Selector
    name: ClassVar[str]  # marks the signature

    @abstractmethod
    def keep(self, candidates: Sequence[Candidate]) -> list[int]:
        """The indices of the candidates that are left to the selector."""

    @property
    def signature(self) -> str:
        """The signature of the other selector, marked with the filter's name."""
        return f"{self.name}|{self.selector.signature}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The index of the selected candidate among all of them."""
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The index of the selected candidate of each sentence."""
        indices = [self.keep_any(candidates) for candidates in sentences]
        remaining = [[each[i] for i in own] for each, own in zip(sentences, indices, strict=True)]
        return [own[at] for own, at in zip(indices, self.selector.select_all(remaining), strict=True)]

    def utilities(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """The other selector's utilities; the pairs of candidates that are left out are 0."""
        kept = self.keep_any(candidates)
        utilities = compare_candidates(self.selector, [candidates[i] for i in kept])
        matrix = np.zeros((len(candidates), len(candidates)))
        matrix[np.ix_(kept, kept)] = utilities or 0.0
        return matrix.tolist() if utilities else []

    def keep_any(self, candidates: Sequence[Candidate]) -> list[int]:
        """The indices of the candidates that are left to the selector; all, if the filter keeps none."""
        return self.keep(candidates) or list(range(len(candidates)))


@dataclass(frozen=True)
class WithoutCopies(CandidateFilter):
    """Another selector, for the candidates that do not copy the source; for all, if all are copies."""

    name = "novel"

    def keep(self, candidates: Sequence[Candidate]) -> list[int]:
        """The indices of the candidates that differ from their source by more than case and spaces."""
        return [i for i, each in enumerate(candidates) if _normalize(each.text) != _normalize(each.source)]


def _normalize(text: str) -> list[str]:
    return text.casefold().split()
