"""What decoders take and give: batches of tokenized sources, and candidates for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noise2text.data.layouts.base import Layout, Source
from noise2text.data.ragged import RaggedRows
from noise2text.generation.runner import Runner

__all__ = ["DecodedStep", "Decoder", "SentenceCandidates", "SourceBatch", "Stage", "TokenRows"]

TokenRows = list[list[int]]


@dataclass(frozen=True)
class SourceBatch:
    """Tokenized sources that are decoded together; their indices in the whole input key the noise."""

    rows: Sequence[Sequence[int]]
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)

    def to_tensors(self, layout: Layout, runner: Runner, max_source: int) -> tuple[Source, Tensor]:
        """The sources and the indices (B,); a runner may fill the batch up with its last sentence."""
        missing = runner.pad_batch(len(self.rows)) - len(self.rows)
        rows = [*self.rows, *[self.rows[-1]] * missing]
        indices = [*self.indices, *[self.indices[-1]] * missing]
        width = runner.pad_length(max(map(len, rows)), max_source)
        return layout.make_source(RaggedRows.from_lists(rows), width=width), torch.tensor(indices)


@dataclass(frozen=True)
class DecodedStep:
    """A sentence's candidates at one step: the noisy canvas and its clean estimate, both as tokens."""

    time: float
    noisy: TokenRows
    clean: TokenRows


@dataclass(frozen=True)
class SentenceCandidates:
    """A sentence's candidates: tokens and scores, one of each per candidate; and their steps, if traced."""

    tokens: TokenRows
    scores: list[float]
    steps: list[DecodedStep]


Stage = Callable[[Any], Any]


class Decoder(ABC):
    """Turns sources into candidates, in stages; a model builds one for a generation config.

    The first stage takes a `SourceBatch`, each one takes what the stage before returned, and the last one
    returns a list of `SentenceCandidates`, one per sentence.

    >>> from noise2text import Decoder
    >>> from noise2text.generation.candidates import SentenceCandidates, SourceBatch
    >>> class CopyDecoder(Decoder):
    ...     def stages(self, *, seed, trace=False):
    ...         return [lambda batch: [SentenceCandidates([list(row)], [0.0], []) for row in batch.rows]]
    >>> CopyDecoder().decode(SourceBatch(rows=[[5, 6]], indices=[0]), seed=0)
    [SentenceCandidates(tokens=[[5, 6]], scores=[0.0], steps=[])]
    """

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
