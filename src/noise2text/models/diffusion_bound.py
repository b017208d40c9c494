"""The variational bound of a diffusion model for a corpus: batches, rounds of generation, lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.variational_bound import VariationalBound
from noise2text.models.likelihood_bound import LikelihoodBound, TimeInterval, summarize_pairs

__all__ = ["CorpusBound"]

LengthNll = Callable[[Canvas], Tensor]
"""−log p of the length of each row's target, (B,)."""


@dataclass(frozen=True)
class PairTerms:
    """The terms of one pair in nats."""

    terms: dict[str, float]
    intervals: list[float]
    num_tokens: int


@dataclass(frozen=True)
class CorpusBound:
    """Adds up the bound of pairs; the seed and the index of a pair decide its noise."""

    bound: VariationalBound
    layout: Layout
    length_nll: LengthNll | None
    device: torch.device
    seed: int

    def measure(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        *,
        max_target: int,
        batch: int,
    ) -> list[PairTerms | None]:
        """The terms of each pair of token rows; None for one that cannot be generated."""
        found: list[PairTerms | None] = [None] * len(sources)
        shortest = 0 if self.length_nll is None else 1
        order = [i for i, row in enumerate(targets) if sources[i] and shortest <= len(row) <= max_target]
        order.sort(key=lambda i: (len(targets[i]), len(sources[i])))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            pairs = (RaggedRows.from_lists([rows[i] for i in chosen]) for rows in (sources, targets))
            canvas = self.layout.make_canvas(*pairs).to(self.device)
            for i, terms in zip(chosen, self._batch_terms(canvas, chosen), strict=True):
                found[i] = terms
        return found

    @torch.inference_mode()
    def _batch_terms(self, canvas: Canvas, indices: Sequence[int]) -> Iterator[PairTerms]:
        """The terms of each row, added up over the rounds of generation."""
        rows, rounds = torch.tensor(indices, device=self.device), list(self.layout.generation_rounds(canvas))
        found = [self.bound(part, make_key(self.seed, rows, number)) for number, part in enumerate(rounds)]
        texts = (part.open_positions & (part.tokens != self.layout.pad) for part in rounds)
        tokens = torch.stack([mask.sum(1) for mask in texts]).sum(0)
        prior, rounding = (
            torch.stack([getattr(terms, name) for terms in found]).sum(0) for name in ("prior", "rounding")
        )
        diffusion = torch.stack([terms.diffusion for terms in found]).sum(0)
        columns = {"prior": prior, "diffusion": diffusion.sum(1), "rounding": rounding}
        if self.length_nll is not None:
            columns["length"], tokens = self.length_nll(canvas).double(), tokens + 1
        values = torch.stack(list(columns.values()), 1).tolist()
        for row, intervals, count in zip(values, diffusion.tolist(), tokens.tolist(), strict=True):
            yield PairTerms(dict(zip(columns, row, strict=True)), intervals, count)

    def summarize(self, found: Sequence[PairTerms | None], *, signature: str) -> LikelihoodBound:
        """The bound of the corpus, with the diffusion term by time."""
        counted = [pair for pair in found if pair is not None]
        num_tokens = max(1, sum(pair.num_tokens for pair in counted))
        edges = self.bound.times[self.bound.interval_edges].tolist()
        sums = [sum(column) for column in zip(*(pair.intervals for pair in counted), strict=True)]
        intervals = [
            TimeInterval(start, end, nats / num_tokens)
            for start, end, nats in zip(edges[:-1], edges[1:], sums, strict=bool(counted))
        ]
        return summarize_pairs(
            [None if pair is None else pair.terms for pair in found],
            [0 if pair is None else pair.num_tokens for pair in found],
            is_exact=False,
            intervals=intervals,
            signature=signature,
        )
