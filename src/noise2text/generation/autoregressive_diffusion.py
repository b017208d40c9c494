"""Autoregressive sampling with a diffusion model (Demirag, 2023, 3.2.1 and 3.2.2).

    t ← ε;   until the end:  sample with source and t given,  t ← t ⊕ the first part of the new tokens

The tokens that one round keeps are given in all later rounds; the canvas keeps its shape. A row has ended
when it has no open position, and decoding ends with the last row (Demirag's algorithm 8 goes on until the
canvas is full). Every round of sampling has its own noise; the first has that of parallel decoding.

- `TokenByTokenDecoder` keeps one token per round (algorithm 8). Any diffusion model can be decoded like this.
- `WordByWordDecoder` keeps one word per round, with models that were trained on `NextWordLayout`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas
from noise2text.data.layouts.next_word import NextWordLayout
from noise2text.generation.parallel import EncodedBatch, ParallelDecoder, SampledBatch

__all__ = ["AutoregressiveDiffusionDecoder", "TokenByTokenDecoder", "WordByWordDecoder"]


@dataclass(frozen=True)
class AutoregressiveDiffusionDecoder(ParallelDecoder):
    """Decoding by several rounds of sampling, each of which adds a part of the text."""

    @abstractmethod
    def select_new_tokens(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Which new tokens (B·C, L) to keep, at least one per row; and which rows (B·C,) have ended."""

    def sharing_key(self, *, seed: int, trace: bool) -> Hashable:
        return self.part_key(seed=seed, trace=trace)  # the rounds depend on all settings

    def fix_tokens(self, canvas: Canvas, tokens: Tensor, new: Tensor, ended: Tensor) -> Canvas:
        """The canvas with the new tokens given, and without open positions in rows that have ended."""
        written = torch.where(new, tokens, canvas.tokens)
        return replace(canvas, tokens=written, given=canvas.given | new | ended[:, None])

    def _denoise(self, encoded_batch: EncodedBatch) -> SampledBatch:
        """Sample until no position is open; a trace has the steps of all rounds, one after another."""
        lengths = self.find_lengths(encoded_batch)
        candidates = self.make_candidates(encoded_batch, lengths, max_length=int(lengths.max()))
        first_keys, number = candidates.noise_keys, 0
        total = torch.zeros_like(candidates.length_scores)
        count = torch.zeros_like(total)
        while bool(candidates.canvas.open_positions.any()):  # the host waits once per round
            canvas = candidates.canvas
            process = self.leave_out_finished(self.make_process(candidates))
            estimate = self.sample(process, self.make_step_callback(candidates))
            tokens, log_probs = self.rounding(canvas, estimate)  # (B·C, L)
            new, ended = self.select_new_tokens(canvas, tokens)
            total, count = total + (log_probs * new).sum(1), count + new.sum(1)
            number += 1
            candidates = replace(
                candidates,
                canvas=self.fix_tokens(canvas, tokens, new, ended),
                noise_keys=make_key(first_keys, number),
            )
        return self.score(candidates, candidates.canvas.tokens, total, count)


class TokenByTokenDecoder(AutoregressiveDiffusionDecoder):
    """Keeps the token at the first open position of each row; a token that ends a text ends its row."""

    def select_new_tokens(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        open_positions = canvas.open_positions
        first = open_positions & (open_positions.cumsum(1) == 1)  # (B·C, L)
        ends = torch.tensor(self.layout.end_tokens, dtype=torch.long, device=tokens.device)
        return first, (first & torch.isin(tokens, ends)).any(1)


@dataclass(frozen=True)
class WordByWordDecoder(AutoregressiveDiffusionDecoder):
    """Keeps all tokens before the first [PAD] or [EOS].

    A row ends with [EOS], or when [PAD] comes first. So every round adds a token or ends a row.
    """

    layout: NextWordLayout

    def select_new_tokens(self, canvas: Canvas, tokens: Tensor) -> tuple[Tensor, Tensor]:
        open_positions = canvas.open_positions
        marks = open_positions & ((tokens == self.layout.eos) | (tokens == self.layout.pad))
        before, first = open_positions & (marks.cumsum(1) == 0), marks & (marks.cumsum(1) == 1)
        ended = (first & (tokens == self.layout.eos)).any(1) | ~before.any(1)
        return before | (first & ended[:, None]), ended

    def fix_tokens(self, canvas: Canvas, tokens: Tensor, new: Tensor, ended: Tensor) -> Canvas:
        return self.layout.limit_to_next_word(super().fix_tokens(canvas, tokens, new, ended))
