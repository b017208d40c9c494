"""Autoregressive decoding: a network scores the next token and a search chooses, until every sentence ends.

Each source is encoded once, for all of its hypotheses. A step has fixed shapes and stays on the device. The
part of the KV cache that attention reads grows in blocks, and the host checks only every few steps whether
the search is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from noise2text.core.devices import copy_to_device
from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Layout
from noise2text.generation.config import AutoregressiveGenerationConfig
from noise2text.generation.decoder import (
    Decoder,
    SentenceCandidates,
    SourceBatch,
    Stage,
    TokenRows,
    TokenTraceStep,
)
from noise2text.generation.executor import EAGER, Executor
from noise2text.generation.token_search import Search, SearchLimits
from noise2text.nn.autoregressive import AutoregressiveNetwork
from noise2text.nn.denoiser import EncoderOutput

__all__ = ["AutoregressiveDecoder", "DecodingState"]

CACHE_BLOCK = 16  # positions by which the part of the cache that is read grows
END_CHECK_INTERVAL = {"cpu": 1}  # steps between checks for the end, where a check costs nothing
DEFAULT_END_CHECK_INTERVAL = 8  # elsewhere


class DecodingState:
    """The state of a batch that is being decoded: the KV cache, the last tokens and their position."""

    def __init__(
        self, network: AutoregressiveNetwork, encoded: EncoderOutput, *, search: Search, length: int
    ) -> None:
        self.network, self.encoded, self.search, self.length = network, encoded, search, length
        device = encoded.padding.device
        self.cache = network.empty_cache(encoded, search.hypotheses, length=length)
        shape = len(encoded.padding), search.hypotheses
        self.tokens = torch.zeros(shape, dtype=torch.long, device=device)  # (B, K)
        self.position = torch.zeros(1, dtype=torch.long, device=device)

    def run(self, prompt: Sequence[int]) -> None:
        """Continue from the given tokens, at least one, until the search is finished."""
        for position, token in enumerate(prompt[:-1]):
            self.tokens.fill_(token)
            self.next_logits(cache_length=self._round_up_to_block(position))
        self.tokens.fill_(prompt[-1])
        check_interval = END_CHECK_INTERVAL.get(self.tokens.device.type, DEFAULT_END_CHECK_INTERVAL)
        for position in range(len(prompt) - 1, self.length):
            self.advance(cache_length=self._round_up_to_block(position))
            if position % check_interval == 0 and bool(self.search.is_finished()):
                break

    def advance(self, *, cache_length: int) -> None:
        """Add one token to each hypothesis, with the same operations each time and without the host."""
        tokens, parents = self.search.step(self.next_logits(cache_length=cache_length))
        self.tokens.copy_(tokens)
        if parents is not None:
            self.network.reorder(self.cache, parents)

    def next_logits(self, *, cache_length: int) -> Tensor:
        """The logits (B, K, V) of the next tokens; the last tokens are added to the cache."""
        logits = self.network.step(
            self.tokens, self.position, self.cache, self.encoded, cache_length=cache_length
        )
        self.position.add_(1)
        return logits

    def _round_up_to_block(self, position: int) -> int:
        return min(self.length, (position // CACHE_BLOCK + 1) * CACHE_BLOCK)


@dataclass(frozen=True)
class AutoregressiveDecoder(Decoder):
    """The parts of an autoregressive model that decode a batch."""

    network: AutoregressiveNetwork
    layout: Layout
    config: AutoregressiveGenerationConfig
    bos: int
    limits: SearchLimits
    max_source: int
    prefix: Sequence[int] = ()
    executor: Executor = EAGER

    def stages(self, *, trace: bool = False) -> list[Stage]:
        """A single stage: the search waits for the device every few tokens anyway."""
        return [partial(self._search, trace=trace)]

    @torch.inference_mode()
    def _search(self, batch: SourceBatch, *, trace: bool) -> list[SentenceCandidates]:
        """The hypotheses of each sentence, best or first sampled first."""
        device = self.limits.forbidden_tokens.device
        sources = batch.to_tensors(self.layout, self.executor, max_source=self.max_source, device=device)
        limits = self._remaining_limits(self.config, len(self.prefix))
        seeds, indices = (copy_to_device(each, device) for each in (sources.seeds, sources.indices))
        search = self.config.build_search(limits, seeds=seeds, indices=indices)
        length = len(self.prefix) + limits.max_length + 1
        encoded = self.executor.encode(self.network, sources.device_source)
        state = self.executor.prepare_decoding_state(
            ("autoregressive", self.network, self.config, length),
            partial(DecodingState, self.network, search=search, length=length),
            encoded,
        )
        state.run([self.bos, *self.prefix])
        tokens, scores = state.search.get_hypotheses()
        decoded = [
            self._make_candidates(rows, scored, trace=trace)
            for rows, scored in zip(tokens.tolist(), scores.tolist(), strict=True)
        ]
        return decoded[: len(batch.rows)]

    def _remaining_limits(self, config: AutoregressiveGenerationConfig, prefix_length: int) -> SearchLimits:
        """The limits for the tokens after a prefix of this length."""
        limits = self.limits
        length = config.find_length(max_length=limits.max_length)
        if length is not None:
            limits = replace(limits, max_length=length, min_length=length)
        if prefix_length >= limits.max_length:
            raise Problem(
                f"The prefix has {prefix_length} of {limits.max_length} tokens: that leaves nothing to write."
            )
        return replace(
            limits,
            max_length=limits.max_length - prefix_length,
            min_length=max(0, limits.min_length - prefix_length),
        )

    def _make_candidates(self, rows: TokenRows, scores: list[float], *, trace: bool) -> SentenceCandidates:
        """The candidates of a sentence; each step of the trace has one more token of every candidate."""
        ended = [(row, score) for row, score in zip(rows, scores, strict=True) if score > -torch.inf]
        texts = [[*self.prefix, *row[: row.index(self.limits.eos)]] for row, _ in ended]
        max_length = max(map(len, texts))
        steps = []
        for count in range(len(self.prefix), max_length + 1) if trace else ():
            partial_texts = [text[:count] for text in texts]
            steps.append(
                TokenTraceStep(1 - count / max_length if max_length else 0.0, partial_texts, partial_texts)
            )
        return SentenceCandidates(texts, [score for _, score in ended], steps)
