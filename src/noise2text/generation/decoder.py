"""The base class of decoders, and what they take and give: batches of tokenized sources, and candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.core.random import seed_tensor
from noise2text.data.layouts.base import Layout, Source
from noise2text.data.ragged import RaggedRows
from noise2text.generation.executor import Executor

__all__ = [
    "Decoder",
    "OnTokens",
    "SentenceCandidates",
    "SourceBatch",
    "SourceTensors",
    "Stage",
    "TokenRows",
    "TokenTraceStep",
]

TokenRows = list[list[int]]


@dataclass(frozen=True)
class SourceBatch:
    """Tokenized sources that are decoded together.

    Fields:
        rows: the tokens of each source.
        indices: the index of each source in its input, which keys the noise together with the seed.
        seeds: the seed of each source, or one for all of them.
        text_numbers: the caller's numbers of their texts, for `on_step`.
    """

    rows: Sequence[Sequence[int]]
    indices: Sequence[int]
    seeds: int | Sequence[int] = 0
    text_numbers: Sequence[int] = ()

    @property
    def row_seeds(self) -> Sequence[int]:
        """The seed of each source."""
        return [self.seeds] * len(self.rows) if isinstance(self.seeds, int) else self.seeds

    def to_tensors(
        self, layout: Layout, executor: Executor, *, max_source: int, device: torch.device
    ) -> SourceTensors:
        """The batch as tensors; an executor may repeat the last sentence."""
        size, width = executor.padded_shape(len(self.rows), max(map(len, self.rows)), max_source)
        rows, seeds, indices = (
            [*each, *[each[-1]] * (size - len(self.rows))]
            for each in (self.rows, self.row_seeds, self.indices)
        )
        source = layout.make_source(RaggedRows.from_lists(rows), width=width)
        return SourceTensors(source, source.to(device), seed_tensor(seeds), torch.tensor(indices))


@dataclass(frozen=True)
class SourceTensors:
    """A `SourceBatch` as tensors, one row per sentence."""

    source: Source  # on the host, like the seeds and indices
    device_source: Source  # the same, on the device
    seeds: Tensor  # (B,)
    indices: Tensor  # (B,)

    def select(self, rows: slice) -> SourceTensors:
        """Some of the sentences."""
        source, device_source = (
            Source(each.tokens[rows], each.padding[rows]) for each in (self.source, self.device_source)
        )
        return SourceTensors(source, device_source, self.seeds[rows], self.indices[rows])


@dataclass(frozen=True)
class TokenTraceStep:
    """One sentence's candidates at one step: the noisy canvas and its clean estimate, both as tokens.

    A trace passes through several types: the sampler's `SampledStep` has the tensors of a batch, this one the
    tokens of a sentence's candidates, and `TraceStep`, which users get, the texts of the selected candidate.

    The confidence is the probability of each clean token, 1 for a given one; decoders that do not know it
    leave it empty.
    """

    time: float
    noisy: TokenRows
    clean: TokenRows
    confidence: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class SentenceCandidates:
    """A sentence's candidates; the last stage of a `Decoder` returns one for each sentence.

    Fields:
        tokens: the tokens of each candidate.
        scores: one per candidate; the higher, the better.
        steps: all candidates at each denoising step, if they are traced.

    >>> from noise2text import SentenceCandidates
    >>> two = SentenceCandidates(tokens=[[5, 6], [5]], scores=[-0.5, -2.0], steps=[])
    >>> max(zip(two.scores, two.tokens))
    (-0.5, [5, 6])
    """

    tokens: TokenRows
    scores: list[float]
    steps: list[TokenTraceStep]


Stage = Callable[[Any], Any]

OnTokens = Callable[[SourceBatch, Sequence[TokenTraceStep]], object]
"""Called after each denoising step: the batch, and the step of each of its sentences."""


class Decoder(ABC):
    """Turns sources into candidates, in stages; a model builds one for a generation config.

    The first stage takes a `SourceBatch`, each one takes what the stage before returned, and the last one
    returns a list of `SentenceCandidates`, one per sentence.

    >>> from noise2text import Decoder
    >>> from noise2text.generation.decoder import SentenceCandidates, SourceBatch
    >>> class CopyDecoder(Decoder):
    ...     def stages(self, *, trace=False):
    ...         return [lambda batch: [SentenceCandidates([list(row)], [0.0], []) for row in batch.rows]]
    >>> CopyDecoder().decode(SourceBatch(rows=[[5, 6]], indices=[0]))
    [SentenceCandidates(tokens=[[5, 6]], scores=[0.0], steps=[])]
    """

    def with_on_step(self, on_step: OnTokens) -> Decoder:
        """This decoder, which calls `on_step` after each denoising step."""
        raise Problem("This model has no denoising steps for on_step to follow: use trace=True instead.")

    def sharing_key(self, *, seed: int, trace: bool) -> Hashable:
        """Texts whose decoders, seeds and traces have equal keys may go through the network together.

        Different decoders may have equal keys only if `mixed_batches.join_stages` can decode with them.
        """
        return self.part_key(seed=seed, trace=trace)

    def part_key(self, *, seed: int, trace: bool) -> Hashable:
        """Texts of a batch with equal keys are one part of it: this decoder decodes them by itself."""
        return id(self), trace

    @abstractmethod
    def stages(self, *, trace: bool = False) -> Sequence[Stage]:
        """The stages, between which a caller may work on another batch."""

    def decode(self, batch: SourceBatch, *, trace: bool = False) -> list[SentenceCandidates]:
        """The candidates of each sentence of a batch."""
        value: Any = batch
        for stage in self.stages(trace=trace):
            value = stage(value)
        decoded: list[SentenceCandidates] = value
        return decoded
