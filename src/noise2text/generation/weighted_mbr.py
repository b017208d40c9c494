"""MBR in which every candidate counts by how likely it is, a token, instead of by 1:

    s* = argmax_{s ∈ C} Σ_{s′ ∈ C} p(s′ | x)^(1/|s′|) · u(s, s′)

A candidate's score is the logarithm of what it counts. By the whole text's likelihood one candidate would
decide alone: judges are surer than they are right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from noise2text.generation.selection import MBR, Candidate
from noise2text.metrics.utilities import UTILITIES, Tables

__all__ = ["Weighed"]


@dataclass(frozen=True)
class Weighed:
    """The candidate with the highest expected utility, each counting by its score; of equals, the first."""

    inner: MBR = field(default_factory=MBR)
    by: str = "score"  # what the signature calls the scores

    @property
    def signature(self) -> str:
        """The rule, whose scores they are, and MBR's own signature."""
        return f"weighed|by:{self.by}|likelihood:mean|{self.inner.signature}"

    def __call__(self, candidates: Sequence[Candidate]) -> int:
        """The place of the candidate with the highest expected utility."""
        return self.choose_all([candidates])[0]

    def choose_all(self, sentences: Sequence[Sequence[Candidate]]) -> list[int]:
        """The same for each sentence, all pairs of many sentences being compared at once."""
        chosen = [0] * len(sentences)
        texts = [list(dict.fromkeys(each.text for each in candidates)) for candidates in sentences]
        divided = [at for at, different in enumerate(texts) if len(different) > 1]
        tables = UTILITIES[self.inner.utility].tables(
            [texts[at] for at in divided], candidate_is=self.inner.candidate_is
        )
        for at, square in zip(divided, chain.from_iterable(map(_squares, tables)), strict=True):
            chosen[at] = self._best(sentences[at], texts[at], square)
        return chosen

    def _best(
        self, candidates: Sequence[Candidate], texts: Sequence[str], square: NDArray[np.float64]
    ) -> int:
        """The place of the best candidate, given the utilities of the different texts."""
        scores = np.array([each.score for each in candidates])
        highest = scores.max()
        counts = np.exp(scores - highest) if np.isfinite(highest) else np.ones(len(scores))
        shares: dict[str, float] = defaultdict(float)
        for each, count in zip(candidates, counts.tolist(), strict=True):
            shares[each.text] += count
        rows = {text: row for row, text in enumerate(texts)}
        places = np.array([rows[each.text] for each in candidates])
        sums = (square @ [shares[text] for text in texts])[places]
        if not self.inner.self_pair:
            sums = sums - square.diagonal()[places] * counts
        return int(sums.argmax())


def _squares(tables: Tables) -> list[NDArray[np.float64]]:
    return [square[:size, :size] for square, size in zip(tables.values, tables.sizes.tolist(), strict=True)]
