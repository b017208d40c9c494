"""The Levenshtein Transformer (Gu et al., NeurIPS 2019): a draft is refined by deleting and inserting.

One transformer has three heads on its states h of the draft y, which is between a begin and an end token:

    π_del(d | i) = softmax(A·h_i)              keep or delete the token y_i
    π_plh(p | i) = softmax(B·[h_i; h_{i+1}])   how many placeholders to insert between y_i and y_{i+1}
    π_tok(t | i) = softmax(E·Q·h_i)            the token of a placeholder

An iteration applies the three in turn, each in parallel over all positions, until nothing changes. They are
trained in `levenshtein_objective.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Layout
from noise2text.data.layouts.template import encode_pieces
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.decoder import Decoder, SentenceCandidates, SourceBatch, Stage, TokenTraceStep
from noise2text.models.baseline_config import LevenshteinGenerationConfig
from noise2text.models.iterative_refinement import (
    IterativeRefinementModel,
    build_nonautoregressive_transformer,
)
from noise2text.models.levenshtein_edits import (
    positions_after_deletion,
    positions_after_insertion,
    scatter_tokens,
)
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.nonautoregressive_transformer import NonAutoregressiveTransformer

__all__ = ["DraftBatch", "EditPolicies", "LevenshteinDecoder", "LevenshteinModel", "SpecialTokens"]


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a draft."""

    pad: int
    bos: int
    eos: int
    placeholder: int


class EditPolicies(nn.Module):
    """The three policies: one transformer with three heads, and one pass over the draft for each."""

    def __init__(
        self, transformer: NonAutoregressiveTransformer, *, model_dim: int, max_placeholders: int
    ) -> None:
        """`max_placeholders` is the largest number of placeholders that one gap gets per iteration."""
        super().__init__()
        self.transformer, self.max_placeholders = transformer, max_placeholders
        self.deletion_head = nn.Linear(model_dim, 2, bias=False)
        self.placeholder_head = nn.Linear(2 * model_dim, max_placeholders + 1, bias=False)
        for head in (self.deletion_head, self.placeholder_head):
            nn.init.normal_(head.weight, std=0.02)

    def deletion_log_probs(self, tokens: Tensor, padding: Tensor, encoded: EncoderOutput) -> Tensor:
        """log p of keeping and of deleting each token, (B, L, 2)."""
        return self.deletion_head(self.transformer(tokens, padding, encoded)).float().log_softmax(-1)

    def placeholder_log_probs(self, tokens: Tensor, padding: Tensor, encoded: EncoderOutput) -> Tensor:
        """log p of each number of placeholders in each gap, (B, L − 1, max_placeholders + 1)."""
        h = self.transformer(tokens, padding, encoded)
        return self.placeholder_head(torch.cat([h[:, :-1], h[:, 1:]], -1)).float().log_softmax(-1)

    def token_log_probs(
        self, tokens: Tensor, padding: Tensor, encoded: EncoderOutput, forbidden: Tensor | None = None
    ) -> Tensor:
        """log p of every token at every position, (B, L, V)."""
        return self.transformer.log_probs(self.transformer(tokens, padding, encoded), forbidden)


@dataclass(frozen=True)
class DraftBatch:
    """Drafts between begin and end tokens, one row per sentence."""

    tokens: Tensor  # (B, L)
    scores: Tensor  # (B, L), log p of the generated tokens
    given_part: Tensor  # (B, L), 1 for the begin token and prefix, 2 for the suffix and end token, else 0

    def scatter_to(self, positions: Tensor, tokens: Tensor) -> DraftBatch:
        """The drafts with each token moved to its new position in `tokens` (B, W)."""
        return DraftBatch(
            scatter_tokens(self.tokens, positions, tokens),
            scatter_tokens(self.scores, positions, torch.zeros_like(tokens)),
            scatter_tokens(self.given_part, positions, torch.zeros_like(tokens)),
        )


@dataclass(frozen=True)
class LevenshteinDecoder(Decoder):
    """The parts of a Levenshtein Transformer that decode."""

    policies: EditPolicies
    special_tokens: SpecialTokens
    forbidden: Tensor  # (V,), True for tokens that are never generated
    max_length: int
    layout: Layout
    config: LevenshteinGenerationConfig
    prefix: Sequence[int] = ()
    suffix: Sequence[int] = ()

    def stages(self, *, trace: bool = False) -> list[Stage]:
        return [partial(self._edit, trace=trace)]

    @torch.inference_mode()
    def _edit(self, batch: SourceBatch, *, trace: bool) -> list[SentenceCandidates]:
        """One candidate per sentence: its draft after the last edit."""
        source = self.layout.make_source(RaggedRows.from_lists(batch.rows)).to(self.forbidden.device)
        encoded = self.policies.transformer.encode(source)
        iterations = self.refine(self.start_drafts(len(batch.rows)), encoded)
        steps = []
        for number, (opened, filled) in enumerate(iterations if trace else ()):
            confidence = filled.scores.exp().masked_fill(filled.given_part > 0, 1.0)
            rows = (
                self._strip_boundaries(opened),
                self._strip_boundaries(filled),
                self._strip_boundaries(filled, confidence),
            )
            steps.append((1 - number / self.config.iterations, rows))
        _, drafts = iterations[-1]
        written = (drafts.given_part == 0) & (drafts.tokens != self.special_tokens.pad)
        scores = (drafts.scores * written).sum(1) / written.sum(1).clamp(min=1)
        return [
            SentenceCandidates(
                [row], [score], [TokenTraceStep(time, *([each[i]] for each in rows)) for time, rows in steps]
            )
            for i, (row, score) in enumerate(
                zip(self._strip_boundaries(drafts), scores.tolist(), strict=True)
            )
        ]

    def _strip_boundaries(self, drafts: DraftBatch, values: Tensor | None = None) -> list[list[Any]]:
        """The tokens between begin and end, or other values (B, L) there."""
        lengths = (drafts.tokens != self.special_tokens.pad).sum(1).tolist()
        rows = (drafts.tokens if values is None else values).tolist()
        return [row[1 : length - 1] for row, length in zip(rows, lengths, strict=True)]

    def start_drafts(self, sentences: int) -> DraftBatch:
        """Drafts that consist of the given prefix and suffix only."""
        row = [self.special_tokens.bos, *self.prefix, *self.suffix, self.special_tokens.eos]
        given_part = [1] * (1 + len(self.prefix)) + [2] * (1 + len(self.suffix))
        tokens, bounds = (
            torch.tensor([each] * sentences, device=self.forbidden.device) for each in (row, given_part)
        )
        return DraftBatch(tokens, torch.zeros_like(tokens, dtype=torch.float), bounds)

    def refine(self, drafts: DraftBatch, encoded: EncoderOutput) -> list[tuple[DraftBatch, DraftBatch]]:
        """The drafts with placeholders and the filled drafts of each iteration, until no row changes.

        If an iteration does not change a row, later ones do not either: finished rows can stay in the batch.
        """
        refined = []
        for number in range(self.config.iterations):
            before = drafts.tokens
            left = self.delete_tokens(drafts, encoded) if number else drafts  # the first draft is given
            opened = self.insert_placeholders(left, encoded, penalty=self.config.penalty)
            drafts = self.fill_placeholders(opened, encoded)
            refined.append((opened, drafts))
            if torch.equal(before, drafts.tokens):
                break
        return refined

    def delete_tokens(self, drafts: DraftBatch, encoded: EncoderOutput) -> DraftBatch:
        """The drafts without the tokens that the policy deletes; given tokens stay."""
        pad = self.special_tokens.pad
        delete_mask = (
            self.policies.deletion_log_probs(drafts.tokens, drafts.tokens == pad, encoded).argmax(-1) == 1
        )
        positions = positions_after_deletion(drafts.tokens, delete_mask & (drafts.given_part == 0), pad=pad)
        return drafts.scatter_to(positions, torch.full_like(drafts.tokens, pad))

    def insert_placeholders(
        self, drafts: DraftBatch, encoded: EncoderOutput, *, penalty: float
    ) -> DraftBatch:
        """The drafts with placeholders, within the maximal length and not between given tokens."""
        tokens, pad = drafts.tokens, self.special_tokens.pad
        log_p = self.policies.placeholder_log_probs(tokens, tokens == pad, encoded)
        counts = torch.cat([log_p[..., :1] - penalty, log_p[..., 1:]], -1).argmax(-1)
        same = (drafts.given_part[:, 1:] == drafts.given_part[:, :-1]) & (drafts.given_part[:, 1:] > 0)
        counts = counts.masked_fill(same | (tokens[:, 1:] == pad), 0)
        room = (self.max_length + 2 - (tokens != pad).sum(1, keepdim=True)).clamp(min=0)
        total = counts.cumsum(1).minimum(room)
        counts = total.diff(dim=1, prepend=torch.zeros_like(room))
        positions, lengths = positions_after_insertion(tokens, counts, pad=pad)
        inside = torch.arange(int(lengths.max()), device=tokens.device) < lengths[:, None]
        return drafts.scatter_to(positions, torch.where(inside, self.special_tokens.placeholder, pad))

    def fill_placeholders(self, drafts: DraftBatch, encoded: EncoderOutput) -> DraftBatch:
        """The drafts with the likeliest token in place of each placeholder."""
        tokens = drafts.tokens
        best = self.policies.token_log_probs(
            tokens, tokens == self.special_tokens.pad, encoded, self.forbidden
        ).max(-1)
        empty = tokens == self.special_tokens.placeholder
        filled = torch.where(empty, best.indices, tokens)
        return replace(drafts, tokens=filled, scores=torch.where(empty, best.values, drafts.scores))


class LevenshteinModel(IterativeRefinementModel):
    """A model that edits a draft until no edit is left."""

    generation_config: LevenshteinGenerationConfig

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.special_tokens = SpecialTokens(tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.mask)
        transformer = build_nonautoregressive_transformer(
            config.model, tokenizer, source_positions=self.max_source, target_positions=self.max_target + 2
        )
        self.policies = EditPolicies(
            transformer, model_dim=config.model.model_dim, max_placeholders=config.model.max_placeholders
        )

    def build_decoder(self, config: LevenshteinGenerationConfig) -> LevenshteinDecoder:
        prefix, suffix = encode_pieces([config.prefix, config.suffix], self.tokenizer)
        given = len(prefix) + len(suffix)
        if given >= self.max_target:
            raise Problem(
                f"Prefix and suffix have {given} of {self.max_target} tokens: that leaves nothing to write."
            )
        return LevenshteinDecoder(
            self.policies,
            self.special_tokens,
            self.forbidden,
            self.max_target,
            layout=self.layout,
            config=config,
            prefix=prefix,
            suffix=suffix,
        )
