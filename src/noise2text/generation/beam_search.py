"""Beam search, and diverse beam search.

Beam search: of all extensions of the hypotheses by one token, the K likeliest are kept. An extension that
ends the text and is among the K best becomes a finished hypothesis. The K finished hypotheses with the best
scores are kept, and a sentence is finished once K have ended. K = 1 is greedy search; with K as wide as the
tree the search is exhaustive.

Diverse beam search (Vijayakumar et al., 2016, algorithm 1 with the Hamming distance): G beams of K / G take
each step one after the other. Each time an earlier beam has chosen a token at this step, the token costs the
later beams λ. The penalty affects only the choice, not the score.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noise2text.generation.token_search import Search, SearchLimits, mask_forbidden

__all__ = ["BeamSearch", "DiverseBeamSearch"]


class BeamSearch(Search):
    """The K likeliest hypotheses, extended token by token."""

    def __init__(
        self,
        sentences: int,
        hypotheses: int,
        *,
        limits: SearchLimits,
        length_penalty: float,
        device: torch.device,
    ) -> None:
        self.hypotheses, self.limits, self.length_penalty = hypotheses, limits, length_penalty
        shape = (sentences, hypotheses)
        self.num_written = torch.zeros(1, dtype=torch.long, device=device)
        self.scores = torch.full(shape, -torch.inf, device=device)
        self.scores[:, 0] = 0.0  # all hypotheses start equal, so only the first is extended
        self.written = torch.full((*shape, limits.max_length + 1), limits.pad, device=device)
        self.finished = torch.full_like(self.written, limits.pad)
        self.finished_scores = torch.full(shape, -torch.inf, device=device)
        self.num_finished = torch.zeros(sentences, dtype=torch.long, device=device)

    def step(self, logits: Tensor, penalty: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The next tokens and their parents; the `penalty` (B, V) of tokens affects this choice only."""
        ranks, scores, tokens, parents = self._expand(logits, penalty)  # (B, 2·K), best first
        ending = tokens == self.limits.eos
        self._collect_finished(ending, scores, parents)
        best = ranks.masked_fill(ending, -torch.inf).topk(self.hypotheses).indices
        tokens, parents = tokens.gather(1, best), parents.gather(1, best)
        self.scores.copy_(scores.masked_fill(ending, -torch.inf).gather(1, best))
        written = _gather_rows(self.written, parents)
        self.written.copy_(written.index_copy_(2, self.num_written, tokens[..., None]))
        self.num_written.add_(1)
        return tokens, parents

    def _expand(self, logits: Tensor, penalty: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The 2·K best extensions: rank, score, token and parent; at most K of them end."""
        logits, normalizer = mask_forbidden(logits, self.limits, self.num_written)
        end = logits[..., self.limits.eos, None]
        ranked = logits if penalty is None else logits - penalty[:, None]
        values, tokens = ranked.topk(min(2 * self.hypotheses, logits.shape[-1]))  # (B, K, 2·K)
        full = self.num_written == self.limits.max_length
        first = torch.arange(values.shape[-1], device=values.device) == 0
        values = torch.where(full, torch.where(first, end, -torch.inf), values)
        tokens = torch.where(full, self.limits.eos, tokens)
        totals = (values - normalizer + self.scores[..., None]).flatten(1)
        best = totals.topk(2 * self.hypotheses)
        parents = best.indices // values.shape[-1]
        tokens = tokens.flatten(1).gather(1, best.indices)
        scores = best.values
        if penalty is not None:
            scores = scores + penalty.gather(1, tokens).masked_fill(full, 0.0)
        return best.values, scores, tokens, parents

    def _collect_finished(self, ending: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Add the extensions that end and are among the K best, unless the sentence is finished."""
        best = slice(self.hypotheses)
        ending = (
            ending[:, best] & (self.num_finished < self.hypotheses)[:, None] & (scores[:, best] > -torch.inf)
        )
        scores = scores[:, best] / (self.num_written + 1) ** self.length_penalty
        written = _gather_rows(self.written, parents[:, best])
        end = torch.full_like(written[..., :1], self.limits.eos)
        finished = torch.cat([self.finished, written.index_copy_(2, self.num_written, end)], dim=1)
        finished_scores = torch.cat([self.finished_scores, scores.masked_fill(~ending, -torch.inf)], dim=1)
        kept = finished_scores.topk(self.hypotheses)
        self.finished.copy_(_gather_rows(finished, kept.indices))
        self.finished_scores.copy_(kept.values)
        self.num_finished.add_(ending.sum(1))

    def is_finished(self) -> Tensor:
        return (self.num_finished >= self.hypotheses).all()

    def get_hypotheses(self) -> tuple[Tensor, Tensor]:
        return self.finished, self.finished_scores


class DiverseBeamSearch(Search):
    """Several beams; each is penalised for the tokens that the earlier ones choose at the same step."""

    def __init__(self, beams: list[BeamSearch], *, diversity: float) -> None:
        self.beams, self.diversity = beams, diversity
        self.hypotheses = sum(beam.hypotheses for beam in beams)

    def rewind(self) -> None:
        for beam in self.beams:
            beam.rewind()

    def step(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        penalty = torch.zeros_like(logits[:, 0], dtype=torch.float)  # (B, V)
        chosen: list[Tensor] = []
        all_parents: list[Tensor] = []
        first = 0
        for beam in self.beams:
            tokens, parents = beam.step(logits[:, first : first + beam.hypotheses], penalty)
            penalty.scatter_add_(1, tokens, torch.full_like(tokens, self.diversity, dtype=torch.float))
            chosen.append(tokens)
            all_parents.append(parents + first)
            first += beam.hypotheses
        return torch.cat(chosen, dim=1), torch.cat(all_parents, dim=1)

    def is_finished(self) -> Tensor:
        return torch.stack([beam.is_finished() for beam in self.beams]).all()

    def get_hypotheses(self) -> tuple[Tensor, Tensor]:
        tokens, scores = zip(*(beam.get_hypotheses() for beam in self.beams), strict=True)
        return torch.cat(tokens, dim=1), torch.cat(scores, dim=1)


def _gather_rows(table: Tensor, indices: Tensor) -> Tensor:
    """The rows (B, N, L) of a table (B, K, L) at these indices (B, N)."""
    return table.gather(1, indices[..., None].expand(-1, -1, table.shape[-1]))
