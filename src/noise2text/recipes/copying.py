"""Copy the source: the score that every system of paraphrase or simplification has to beat.

    noise2text train copy --train pairs.jsonl --valid pairs.jsonl --out runs/copy

There is nothing to learn. Training notes how the copies score on the validation set and saves an empty model.
The tokens are bytes, so that every text is copied as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import option
from noise2text.data.token_store import TokenStore
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.candidates import Candidates, Decoder, Stage
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import Model
from noise2text.models.baseline_config import CopyGenerationConfig
from noise2text.models.registry import Recipe, keep_config
from noise2text.training.config import DataConfig

__all__ = ["RECIPE", "CopyConfig", "CopyModel", "build", "fit"]

_BYTE_VOCABULARY = 262  # byte-level BPE without a merge: the bytes and the special tokens


@dataclass(frozen=True)
class CopyConfig(DataConfig):
    """Texts as bytes, uncut as far as texts go."""

    vocabulary: int = option(_BYTE_VOCABULARY, "how many tokens a learned BPE has; 262 are the bytes alone")
    max_source: int = option(1_000_000, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(1_000_000, "longest target in tokens; what is longer is cut and counted")


class CopyDecoder(Decoder):
    """Gives every source back as its only candidate."""

    def stages(self, *, seed: int, trace: bool = False) -> list[Stage]:
        return [lambda batch: [Candidates([list(row)], [0.0], []) for row in batch.rows]]


class CopyModel(Model):
    """Gives the source back."""

    def __init__(self, config: CopyConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.max_source, self.generation_config = (
            tokenizer,
            config.max_source,
            CopyGenerationConfig(),
        )

    def build_decoder(self, config: CopyGenerationConfig) -> CopyDecoder:
        return CopyDecoder()

    def selector(self, generation_config: CopyGenerationConfig) -> Selector:
        return BestScore()


def build(config: CopyConfig, tokenizer: Tokenizer) -> CopyModel:
    """The system; it comes trained."""
    return CopyModel(config, tokenizer)


def fit(config: CopyConfig, tokenizer: Tokenizer, pairs: TokenStore) -> tuple[CopyConfig, CopyModel]:
    """The settings and the system, whatever the pairs."""
    return config, build(config, tokenizer)


RECIPE = Recipe(
    name="copy",
    paper="A common baseline",
    section="–",
    summary="Gives the source back; nothing is learned.",
    presets={"plain": CopyConfig(), "tiny": CopyConfig()},
    default_preset="plain",
    resolve=keep_config,
    build=build,
    fit=fit,
)
