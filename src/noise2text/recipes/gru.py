"""GRU with attention (Cho et al., 2014; Bahdanau et al., 2015): the recurrent baseline of DiffuSeq's table 1.

    noise2text train gru --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset qqp

Ended layout + bidirectional GRU encoder, GRU decoder, dot-product attention; the surprise at each next
token; beam search. DiffuSeq's table 4 gives nothing of the shape but 65 million parameters, which `qqp`
has with BERT's vocabulary.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option, require_at_least, require_fraction
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveGenerationConfig
from noise2text.models import AutoregressiveModel
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.recurrent import GRU
from noise2text.training.config import TrainingConfig
from noise2text.training.next_token import NextTokenObjective

__all__ = ["PRESETS", "RECIPE", "GRUConfig", "build", "objective"]


@dataclass(frozen=True)
class GRUConfig(TrainingConfig):
    """The defaults have the size of DiffuSeq's table 4."""

    model_dim: int = option(1536, "dimension of the states; each direction of the encoder has half of it")
    embedding_dim: int = option(512, "dimension of the embeddings")
    layers: int = option(2, "layers of the encoder, and of the decoder")
    dropout: float = option(0.2, "dropout")
    label_smoothing: float = option(0.0, "share of the target's probability that is spread over all tokens")

    beam: int = option(5, "hypotheses of the beam search, as the model's default")
    length_penalty: float = option(1.0, "the power of the length in a score, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "embedding_dim", "layers", "beam")
        require_fraction(self, "dropout", "label_smoothing")
        if self.model_dim < 2 or self.model_dim % 2:
            raise Problem(
                f"The setting model_dim must be even, half for each direction, not {self.model_dim}."
            )


_QQP = GRUConfig(vocabulary=30_522, lowercase=True, steps=50_000, warmup=4_000, weight_decay=0.0)

PRESETS: dict[str, GRUConfig] = {
    "qqp": _QQP,
    "tiny": dataclasses.replace(
        _QQP,
        tokenizer="characters",
        model_dim=128,
        embedding_dim=64,
        layers=1,
        dropout=0.1,
        max_source=64,
        max_target=64,
        steps=600,
        max_tokens=2_048,
        lr=3e-3,
        warmup=100,
        lr_schedule="cosine",
        log_every=50,
        validate_every=200,
        save_every=200,
        validation_sentences=100,
    ),
}


def build(config: GRUConfig, tokenizer: Tokenizer) -> AutoregressiveModel:
    """The untrained system."""
    return AutoregressiveModel(
        tokenizer,
        network=GRU(
            TokenEmbedding(len(tokenizer), config.embedding_dim),
            model_dim=config.model_dim,
            layers=config.layers,
            dropout=config.dropout,
        ),
        generation_config=AutoregressiveGenerationConfig(
            beam=config.beam, length_penalty=config.length_penalty
        ),
        max_source=config.max_source,
        max_target=config.max_target,
    )


def objective(config: GRUConfig, model: AutoregressiveModel) -> NextTokenObjective:
    """What the system is trained on: each next token."""
    return NextTokenObjective(model.network, bos=model.tokenizer.bos, label_smoothing=config.label_smoothing)


RECIPE = Recipe(
    name="gru",
    paper="GRU with attention (Cho et al., 2014), as in DiffuSeq (Gong et al., 2023)",
    section="4.1",
    summary="The recurrent encoder-decoder with attention, written from left to right.",
    presets=PRESETS,
    default_preset="qqp",
    resolve=keep_config,
    build=build,
    objective=objective,
)
