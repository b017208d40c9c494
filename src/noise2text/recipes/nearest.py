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
from noise2text.data.ragged import RaggedRows
from noise2text.data.token_store import TokenStore
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.candidates import Candidates, Decoder, Stage
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import Model
from noise2text.models.baseline_config import NearestGenerationConfig
from noise2text.models.nearest_neighbours import NgramIndex
from noise2text.models.registry import Recipe, keep_config
from noise2text.training.config import DataConfig

__all__ = ["PRESETS", "RECIPE", "NearestConfig", "NearestModel", "build", "fit"]


@dataclass(frozen=True)
class NearestConfig(DataConfig):
    """How texts are cut into tokens, and how large the remembered corpus is."""

    pairs: int = option(0, "pairs remembered; training counts them")
    source_tokens: int = option(0, "tokens of their sources; training counts them")
    target_tokens: int = option(0, "tokens of their targets; training counts them")


PRESETS = {"plain": NearestConfig(), "tiny": NearestConfig(tokenizer="characters")}


@dataclass(frozen=True)
class NearestDecoder(Decoder):
    """Gives the targets of the most similar sources."""

    sources: NgramIndex
    targets: RaggedRows
    neighbours: int

    def stages(self, *, seed: int, trace: bool = False) -> list[Stage]:
        return [lambda batch: [self._look_up(row) for row in batch.rows]]

    def _look_up(self, row: Sequence[int]) -> Candidates:
        starts = np.cumsum(self.targets.lengths) - self.targets.lengths
        chosen, scores = self.sources.search(row, self.neighbours)
        answers = RaggedRows.from_slices(self.targets.tokens, starts[chosen], self.targets.lengths[chosen])
        return Candidates(list(answers), scores.tolist(), [])


class NearestModel(Model):
    """Remembers a corpus and answers from it."""

    def __init__(self, config: NearestConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.max_source, self.generation_config = (
            tokenizer,
            config.max_source,
            NearestGenerationConfig(),
        )
        dtype = torch.uint16 if len(tokenizer) <= 1 << 16 else torch.int32
        for side, tokens in (("source", config.source_tokens), ("target", config.target_tokens)):
            self.register_buffer(f"{side}_tokens", torch.zeros(tokens, dtype=dtype))
            self.register_buffer(f"{side}_lengths", torch.zeros(config.pairs, dtype=torch.int32))

    source_tokens: Tensor
    source_lengths: Tensor
    target_tokens: Tensor
    target_lengths: Tensor

    def store_pairs(self, sources: RaggedRows, targets: RaggedRows) -> None:
        """Take in the pairs that the settings have counted."""
        for side, rows in (("source", sources), ("target", targets)):
            tokens, lengths = getattr(self, f"{side}_tokens"), getattr(self, f"{side}_lengths")
            tokens.copy_(torch.from_numpy(rows.tokens))
            lengths.copy_(torch.from_numpy(rows.lengths))

    @cached_property
    def _neighbours(self) -> NgramIndex:
        return NgramIndex(RaggedRows(_numbers(self.source_tokens), _numbers(self.source_lengths)))

    @cached_property
    def _targets(self) -> RaggedRows:
        return RaggedRows(_numbers(self.target_tokens), _numbers(self.target_lengths))

    def build_decoder(self, config: NearestGenerationConfig) -> NearestDecoder:
        return NearestDecoder(self._neighbours, self._targets, config.neighbours)

    def selector(self, generation_config: NearestGenerationConfig) -> Selector:
        return BestScore()


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy().astype(np.int64)


def build(config: NearestConfig, tokenizer: Tokenizer) -> NearestModel:
    """The system with room for its corpus."""
    return NearestModel(config, tokenizer)


def fit(config: NearestConfig, tokenizer: Tokenizer, pairs: TokenStore) -> tuple[NearestConfig, NearestModel]:
    """The settings with the corpus counted, and the system that has it."""
    sources, targets = pairs.get_pairs(np.arange(len(pairs)))
    counted = dataclasses.replace(
        config, pairs=len(pairs), source_tokens=len(sources.tokens), target_tokens=len(targets.tokens)
    )
    model = build(counted, tokenizer)
    model.store_pairs(sources, targets)
    return counted, model


RECIPE = Recipe(
    name="nearest",
    paper="A common baseline",
    section="–",
    summary="Answers with the target of the most similar training source.",
    presets=PRESETS,
    default_preset="plain",
    resolve=keep_config,
    build=build,
    fit=fit,
)
