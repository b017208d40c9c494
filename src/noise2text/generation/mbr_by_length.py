"""MBR in two rounds, as DiNoiSer's released code selects: within each length, then among the winners.

Candidates of one length are alternatives to each other. In one round, a length with many similar candidates
outvotes the others; in two, every length has one vote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from noise2text.generation.mbr import MBR
from noise2text.generation.selection import Candidate

__all__ = ["MBRByLength"]


@dataclass(frozen=True)
class MBRByLength:
    """The candidate of least mean risk among those that are so among the candidates of their length.

    The length is the number of tokens, so it is the one that the model predicted.

    >>> from noise2text.generation.selection import Candidate
    >>> texts = ["a b c d", "a b c e", "a b c d", "a b x y z", "a b c d z"]
    >>> candidates = [Candidate(text, tuple(range(len(text.split()))), 0.0) for text in texts]
    >>> texts[MBRByLength()(candidates)]
    'a b c d'
    """

    mbr: MBR = field(default_factory=MBR)

    @property
    def signature(self) -> str:
        """The rule and the signature of MBR."""
        return f"by-length|{self.mbr.signature}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The index of the selected candidate."""
        return self.select_all([candidates])[0]

    def select_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The index of the selected candidate of each sentence."""
        grouped = [_group_by_length(candidates) for candidates in sentences]  # by sentence and length
        groups = [
            [candidates[i] for i in indices]
            for candidates, by_length in zip(sentences, grouped, strict=True)
            for indices in by_length
        ]
        winners = iter(self.mbr.select_all(groups))
        finalists = [[indices[next(winners)] for indices in by_length] for by_length in grouped]
        finals = [[each[i] for i in own] for each, own in zip(sentences, finalists, strict=True)]
        return [own[at] for own, at in zip(finalists, self.mbr.select_all(finals), strict=True)]

    def utilities(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """The utility of each candidate (row) against each (column), whatever their lengths."""
        return self.mbr.utilities(candidates)


def _group_by_length(candidates: Sequence[Candidate]) -> list[list[int]]:
    """The indices of the candidates of each length; lengths in the order of their first candidate."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, each in enumerate(candidates):
        by_length[len(each.tokens)].append(index)
    return list(by_length.values())
