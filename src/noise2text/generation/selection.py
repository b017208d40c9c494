"""Selection among the candidates of a sentence: what a selector is, the likeliest candidate, and filters.

Minimum Bayes risk, which diffusion models select by, is in `mbr.py`. A signature names a rule and everything
that changes its choice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from noise2text.core.errors import Problem, abbreviate

__all__ = [
    "BestScore",
    "Candidate",
    "CandidateFilter",
    "ComparesCandidates",
    "Selector",
    "WithoutCopies",
    "WrapsSelector",
    "compare_candidates",
    "require_selector",
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


def require_selector(selector: Any) -> None:
    """Raise a Problem for what is no selector; None, for the one of the settings, is no mistake."""
    if selector is None or (not isinstance(selector, type) and hasattr(selector, "select_all")):
        return
    raise Problem(
        f"generate takes a Selector, an object with select_all, as selector, not {abbreviate(selector)}: for "
        f'one of the package give the setting select, such as select="mbr".'
    )


def compare_candidates(selector: Selector, candidates: Sequence[Candidate]) -> list[list[float]]:
    """The utility of each candidate (row) against each (column); empty if the selector compares none."""
    return selector.utilities(candidates) if isinstance(selector, ComparesCandidates) else []


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

    name = "no-copies"

    def keep(self, candidates: Sequence[Candidate]) -> list[int]:
        """The indices of the candidates that differ from their source by more than case and spaces."""
        return [i for i, each in enumerate(candidates) if _normalize(each.text) != _normalize(each.source)]


def _normalize(text: str) -> list[str]:
    return text.casefold().split()
