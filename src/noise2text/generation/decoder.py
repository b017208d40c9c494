"""The base class of decoders, and what they take and give: batches of tokenized sources, and candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Layout, Source
from noise2text.data.ragged import RaggedRows
from noise2text.generation.executor import Executor

__all__ = ["Decoder", "OnTokens", "SentenceCandidates", "SourceBatch", "Stage", "TokenRows", "TokenTraceStep"]

TokenRows = list[list[int]]


@dataclass(frozen=True)
class SourceBatch:
    """Tokenized sources that are decoded together; their indices in the whole input key the noise.

    The positions say where the caller has their texts, for `on_step`.
    """

    rows: Sequence[Sequence[int]]
    indices: Sequence[int]
    positions: Sequence[int] = ()

    def to_tensors(self, layout: Layout, executor: Executor, max_source: int) -> tuple[Source, Tensor]:
        """The sources and the indices (B,); an executor may fill the batch up with its last sentence."""
        size, width = executor.padded_shape(len(self.rows), max(map(len, self.rows)), max_source)
        missing = size - len(self.rows)
        rows = [*self.rows, *[self.rows[-1]] * missing]
        indices = [*self.indices, *[self.indices[-1]] * missing]
        return layout.make_source(RaggedRows.from_lists(rows), width=width), torch.tensor(indices)


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
    """A sentence's candidates: tokens and scores, one of each per candidate; and their steps, if traced."""

    tokens: TokenRows
    scores: list[float]
    steps: list[TokenTraceStep]


Stage = Callable[[Any], Any]

OnTokens = Callable[[SourceBatch, float, TokenRows], object]
"""Called after each denoising step: the batch, the time, and the first candidate of each sentence."""


class Decoder(ABC):
    """Turns sources into candidates, in stages; a model builds one for a generation config.

    The first stage takes a `SourceBatch`, each one takes what the stage before returned, and the last one
    returns a list of `SentenceCandidates`, one per sentence.

    >>> from noise2text import Decoder
    >>> from noise2text.generation.decoder import SentenceCandidates, SourceBatch
    >>> class CopyDecoder(Decoder):
    ...     def stages(self, *, seed, trace=False):
    ...         return [lambda batch: [SentenceCandidates([list(row)], [0.0], []) for row in batch.rows]]
    >>> CopyDecoder().decode(SourceBatch(rows=[[5, 6]], indices=[0]), seed=0)
    [SentenceCandidates(tokens=[[5, 6]], scores=[0.0], steps=[])]
    """

    def with_on_step(self, on_step: OnTokens) -> Decoder:
        """This decoder, which calls `on_step` after each denoising step."""
        raise Problem("This model has no denoising steps for on_step to follow: use trace=True instead.")

    @abstractmethod
    def stages(self, *, seed: int, trace: bool = False) -> Sequence[Stage]:
        """The stages, between which a caller may work on another batch."""

    def decode(self, batch: SourceBatch, *, seed: int, trace: bool = False) -> list[SentenceCandidates]:
        """The candidates of each sentence of a batch."""
        value: Any = batch
        for stage in self.stages(seed=seed, trace=trace):
            value = stage(value)
        decoded: list[SentenceCandidates] = value
        return decoded
