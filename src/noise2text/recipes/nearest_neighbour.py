"""Nearest neighbour: return the target of the training source that is most similar to the source.

    noise2text train nearest --train pairs.jsonl --valid pairs.jsonl --out runs/nearest

The score of a model that only memorizes. The model is the corpus: the tokens of both sides and their lengths
are the tensors of model.safetensors, two bytes per token where the vocabulary allows. The similarity of two
sources is how many n-grams of tokens they share (`models/ngram_index.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from noise2text.core.config import Config, option, section
from noise2text.data.config import DataConfig
from noise2text.data.ragged import RaggedRows
from noise2text.data.token_store import TokenStore
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.decoder import Decoder, SentenceCandidates, Stage
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import Model
from noise2text.models.baseline_config import NearestGenerationConfig
from noise2text.models.ngram_index import NgramIndex
from noise2text.models.registry import Recipe
from noise2text.training.config import ValidationConfig

__all__ = ["PRESETS", "RECIPE", "NearestConfig", "NearestModel", "NearestModelConfig", "build", "fit"]


@dataclass(frozen=True)
class NearestModelConfig(Config):
    """The size of the stored corpus."""

    pairs: int = option(0, "stored pairs; training counts them", minimum=0)
    source_tokens: int = option(0, "tokens of their sources; training counts them", minimum=0)
    target_tokens: int = option(0, "tokens of their targets; training counts them", minimum=0)


@dataclass(frozen=True)
class NearestConfig(Config):
    """How texts become tokens, and the size of the stored corpus."""

    data: DataConfig = section(DataConfig(), "how texts become tokens")
    model: NearestModelConfig = section(NearestModelConfig(), "the stored corpus")
    generation: NearestGenerationConfig = section(NearestGenerationConfig(), "how the model generates")
    run: ValidationConfig = section(ValidationConfig(), "validation")


PRESETS = {"plain": NearestConfig(), "tiny": NearestConfig().replace(tokenizer="characters")}


@dataclass(frozen=True)
class NearestDecoder(Decoder):
    """Returns the targets of the most similar sources."""

    sources: NgramIndex
    targets: RaggedRows
    neighbours: int

    def stages(self, *, trace: bool = False) -> list[Stage]:
        return [lambda batch: [self._look_up(row) for row in batch.rows]]

    def _look_up(self, row: Sequence[int]) -> SentenceCandidates:
        starts = np.cumsum(self.targets.lengths) - self.targets.lengths
        chosen, scores = self.sources.search(row, self.neighbours)
        targets = RaggedRows.from_slices(self.targets.tokens, starts[chosen], self.targets.lengths[chosen])
        return SentenceCandidates(list(targets), scores.tolist(), [])


class NearestModel(Model):
    """Stores a corpus and looks up targets in it."""

    def __init__(self, config: NearestConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.max_source = tokenizer, config.data.max_source
        self.generation_config = config.generation
        sizes = config.model
        dtype = torch.uint16 if len(tokenizer) <= 1 << 16 else torch.int32
        for side, tokens in (("source", sizes.source_tokens), ("target", sizes.target_tokens)):
            self.register_buffer(f"{side}_tokens", torch.zeros(tokens, dtype=dtype))
            self.register_buffer(f"{side}_lengths", torch.zeros(sizes.pairs, dtype=torch.int32))

    source_tokens: Tensor
    source_lengths: Tensor
    target_tokens: Tensor
    target_lengths: Tensor

    def store_pairs(self, sources: RaggedRows, targets: RaggedRows) -> None:
        """Copy in the pairs that the config counts."""
        for side, rows in (("source", sources), ("target", targets)):
            tokens, lengths = getattr(self, f"{side}_tokens"), getattr(self, f"{side}_lengths")
            tokens.copy_(torch.from_numpy(rows.tokens))
            lengths.copy_(torch.from_numpy(rows.lengths))

    @cached_property
    def _source_index(self) -> NgramIndex:
        return NgramIndex(RaggedRows(_to_numpy(self.source_tokens), _to_numpy(self.source_lengths)))

    @cached_property
    def _targets(self) -> RaggedRows:
        return RaggedRows(_to_numpy(self.target_tokens), _to_numpy(self.target_lengths))

    def build_decoder(self, config: NearestGenerationConfig) -> NearestDecoder:
        return NearestDecoder(self._source_index, self._targets, config.neighbours)

    def build_selector(self, generation_config: NearestGenerationConfig) -> Selector:
        return BestScore()


def _to_numpy(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy().astype(np.int64)


def build(config: NearestConfig, tokenizer: Tokenizer) -> NearestModel:
    """The model, with zeros in place of its corpus."""
    return NearestModel(config, tokenizer)


def fit(config: NearestConfig, tokenizer: Tokenizer, pairs: TokenStore) -> tuple[NearestConfig, NearestModel]:
    """The config with the size of the corpus, and the model that stores it."""
    sources, targets = pairs.get_pairs(np.arange(len(pairs)))
    counted = config.replace(
        pairs=len(pairs), source_tokens=len(sources.tokens), target_tokens=len(targets.tokens)
    )
    model = build(counted, tokenizer)
    model.store_pairs(sources, targets)
    return counted, model


RECIPE = Recipe(
    name="nearest",
    paper="A common baseline",
    paper_section="–",
    summary="Returns the target of the most similar training source.",
    presets=PRESETS,
    default_preset="plain",
    build=build,
    fit=fit,
)
