"""Nearest neighbour: answer with the target of the training source that is most like the source.

    noise2text train nearest --train pairs.jsonl --valid pairs.jsonl --out runs/nearest

What a model that only remembers would score. The model is the corpus: the tokens of both sides and their
lengths are the tensors of model.safetensors, two bytes a token where the vocabulary allows. Sources are alike
as far as they share n-grams of tokens (`baselines/neighbours.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from noise2text.core.config import option
from noise2text.data.ragged import Rows
from noise2text.data.token_store import Prepared
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.parallel import Draft
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import System
from noise2text.models.baseline_config import NearestSettings
from noise2text.models.nearest_neighbours import Neighbours
from noise2text.models.registry import Recipe, unchanged
from noise2text.training.config import DataSettings

__all__ = ["PRESETS", "RECIPE", "Nearest", "RememberedSettings", "build", "fit"]


@dataclass(frozen=True)
class RememberedSettings(DataSettings):
    """How texts are cut into tokens, and how large the remembered corpus is."""

    pairs: int = option(0, "pairs remembered; training counts them")
    source_tokens: int = option(0, "tokens of their sources; training counts them")
    target_tokens: int = option(0, "tokens of their targets; training counts them")


PRESETS = {"plain": RememberedSettings(), "tiny": RememberedSettings(tokenizer="characters")}


class Nearest(System):
    """Remembers a corpus and answers from it."""

    def __init__(self, settings: RememberedSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.max_source, self.how = tokenizer, settings.max_source, NearestSettings()
        dtype = torch.uint16 if len(tokenizer) <= 1 << 16 else torch.int32
        for side, tokens in (("source", settings.source_tokens), ("target", settings.target_tokens)):
            self.register_buffer(f"{side}_tokens", torch.zeros(tokens, dtype=dtype))
            self.register_buffer(f"{side}_lengths", torch.zeros(settings.pairs, dtype=torch.int32))

    source_tokens: Tensor
    source_lengths: Tensor
    target_tokens: Tensor
    target_lengths: Tensor

    def remember(self, sources: Rows, targets: Rows) -> None:
        """Take in the pairs that the settings have counted."""
        for side, rows in (("source", sources), ("target", targets)):
            tokens, lengths = getattr(self, f"{side}_tokens"), getattr(self, f"{side}_lengths")
            tokens.copy_(torch.from_numpy(rows.tokens))
            lengths.copy_(torch.from_numpy(rows.lengths))

    @cached_property
    def _neighbours(self) -> Neighbours:
        return Neighbours(Rows(_numbers(self.source_tokens), _numbers(self.source_lengths)))

    @cached_property
    def _targets(self) -> Rows:
        return Rows(_numbers(self.target_tokens), _numbers(self.target_lengths))

    def drafts(
        self,
        rows: Sequence[Sequence[int]],
        how: NearestSettings,
        *,
        seed: int,
        places: Sequence[int],
        trace: bool,
    ) -> list[Draft]:
        targets = self._targets
        starts = np.cumsum(targets.lengths) - targets.lengths
        drafts = []
        for row in rows:
            chosen, scores = self._neighbours.nearest(row, how.neighbours)
            answers = Rows.cut(targets.tokens, starts[chosen], targets.lengths[chosen])
            drafts.append(Draft(list(answers), scores.tolist(), []))
        return drafts

    def selector(self, how: NearestSettings) -> Selector:
        return BestScore()


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy().astype(np.int64)


def build(settings: RememberedSettings, tokenizer: Tokenizer) -> Nearest:
    """The system with room for its corpus."""
    return Nearest(settings, tokenizer)


def fit(
    settings: RememberedSettings, tokenizer: Tokenizer, pairs: Prepared
) -> tuple[RememberedSettings, Nearest]:
    """The settings with the corpus counted, and the system that has it."""
    sources, targets = pairs.pairs(np.arange(len(pairs)))
    counted = dataclasses.replace(
        settings, pairs=len(pairs), source_tokens=len(sources.tokens), target_tokens=len(targets.tokens)
    )
    system = build(counted, tokenizer)
    system.remember(sources, targets)
    return counted, system


RECIPE = Recipe(
    name="nearest",
    paper="A common baseline",
    section="–",
    line="Answers with the target of the most similar training source.",
    presets=PRESETS,
    default="plain",
    resolve=unchanged,
    build=build,
    fit=fit,
)
