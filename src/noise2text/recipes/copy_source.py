"""Copy the source: the score that every model of paraphrase or simplification has to beat.

    noise2text train copy --train pairs.jsonl --valid pairs.jsonl --out runs/copy

There is nothing to learn. Training logs how the copies score on the validation set and saves an empty model.
The tokens are bytes, so that every text is copied exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, section
from noise2text.data.config import DataConfig
from noise2text.data.token_store import TokenStore
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.decoder import Decoder, SentenceCandidates, Stage
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import Model
from noise2text.models.baseline_config import CopyGenerationConfig
from noise2text.models.registry import Recipe
from noise2text.training.config import ValidationConfig

__all__ = ["RECIPE", "CopyConfig", "CopyModel", "build", "fit"]

_BYTE_VOCABULARY = 262  # byte-level BPE without a merge: the bytes and the special tokens


@dataclass(frozen=True)
class CopyConfig(Config):
    """Texts as bytes, with no limit on their length that a text would reach."""

    data: DataConfig = section(
        DataConfig(vocabulary=_BYTE_VOCABULARY, max_source=1_000_000, max_target=1_000_000),
        "how texts become tokens",
    )
    generation: CopyGenerationConfig = section(CopyGenerationConfig(), "how the model generates")
    run: ValidationConfig = section(ValidationConfig(), "validation")


class CopyDecoder(Decoder):
    """Returns every source as its only candidate."""

    def stages(self, *, trace: bool = False) -> list[Stage]:
        return [lambda batch: [SentenceCandidates([list(row)], [0.0], []) for row in batch.rows]]


class CopyModel(Model):
    """A model without weights that returns the source."""

    def __init__(self, config: CopyConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.max_source = tokenizer, config.data.max_source
        self.generation_config = config.generation

    def build_decoder(self, config: CopyGenerationConfig) -> CopyDecoder:
        return CopyDecoder()

    def build_selector(self, generation_config: CopyGenerationConfig) -> Selector:
        return BestScore()


def build(config: CopyConfig, tokenizer: Tokenizer) -> CopyModel:
    """The model; there is nothing to train."""
    return CopyModel(config, tokenizer)


def fit(config: CopyConfig, tokenizer: Tokenizer, pairs: TokenStore) -> tuple[CopyConfig, CopyModel]:
    """The config and the model, whatever the pairs."""
    return config, build(config, tokenizer)


RECIPE = Recipe(
    name="copy",
    paper="A common baseline",
    paper_section="–",
    summary="Returns the source; nothing is learned.",
    presets={"plain": CopyConfig(), "tiny": CopyConfig()},
    default_preset="plain",
    build=build,
    fit=fit,
)
