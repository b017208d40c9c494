"""The Transformer (Vaswani et al., 2017): the autoregressive baseline, and the papers' teacher and reranker.

    noise2text train transformer --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

Post-norm encoder-decoder over a target with an end token; label-smoothed cross-entropy of each next token;
beam search. The shapes are those of Difformer's tables 3 and 4 (given in its table 21) and of Demirag (2023),
4.1.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noise2text.core.config import Config, section
from noise2text.data.config import DataConfig
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.config import AutoregressiveGenerationConfig
from noise2text.models import AutoregressiveModel
from noise2text.models.baseline_config import LabelSmoothingOptimConfig, TransformerModelConfig
from noise2text.models.presets import DIFFORMER_TABLE_21, TINY_AUTOREGRESSIVE
from noise2text.models.registry import Recipe
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import LayerShape
from noise2text.nn.transformer import Transformer
from noise2text.training.config import RunConfig
from noise2text.training.next_token import NextTokenObjective

__all__ = ["PRESETS", "RECIPE", "TransformerConfig", "build", "objective"]


@dataclass(frozen=True)
class TransformerConfig(Config):
    """The defaults are Difformer's IWSLT14 column."""

    data: DataConfig = section(DataConfig(), "how texts become tokens")
    model: TransformerModelConfig = section(TransformerModelConfig(), "the network")
    optim: LabelSmoothingOptimConfig = section(LabelSmoothingOptimConfig(), "the optimizer and the loss")
    generation: AutoregressiveGenerationConfig = section(
        AutoregressiveGenerationConfig(), "how the model generates"
    )
    run: RunConfig = section(RunConfig(), "seed, hardware, logging")


_IWSLT14 = TransformerConfig()

PRESETS: dict[str, TransformerConfig] = {
    **{name: _IWSLT14.replace(changes) for name, changes in DIFFORMER_TABLE_21.items()},
    "iwslt14-en-de": _IWSLT14,  # run by SeqDiffuSeq, which gives no settings: those of the other direction
    "wmt14-de-en": _IWSLT14.replace(DIFFORMER_TABLE_21["wmt14-en-de"]),
    "commonsense-conversation": _IWSLT14.replace(  # DiffuSeq gives no numbers: its steps, QQP's shape
        DIFFORMER_TABLE_21["qqp"] | {"optim.steps": 140_000}
    ),
    "covost-de-en": _IWSLT14.replace(  # Demirag's shape; the rest is the base model of Vaswani et al.
        {"optim.steps": 100_000},
        vocabulary=30_000,
        normalize=True,
        max_source=64,
        max_target=64,
        dropout=0.1,
        max_tokens=25_000,
        lr=(512 * 4_000) ** -0.5,
        warmup=4_000,
        weight_decay=0.0,
        clip_norm=0.0,
        beam=10,
    ),
    "tiny": _IWSLT14.replace(
        TINY_AUTOREGRESSIVE | {"optim.steps": 600},
        ffn_dim=512,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        lr=1e-3,
        validate_every=200,
    ),
}


def build(config: TransformerConfig, tokenizer: Tokenizer) -> AutoregressiveModel:
    """The untrained model."""
    network = Transformer(
        TokenEmbedding(len(tokenizer), config.model.model_dim),
        LayerShape.from_config(config.model),
        encoder_layers=config.model.encoder_layers,
        decoder_layers=config.model.decoder_layers,
        source_positions=config.data.max_source,
        target_positions=config.data.max_target + 1,  # with the begin token
    )
    return AutoregressiveModel(
        tokenizer,
        network=network,
        generation_config=config.generation,
        max_source=config.data.max_source,
        max_target=config.data.max_target,
    )


def objective(config: Any, model: AutoregressiveModel) -> NextTokenObjective:
    """The training objective of autoregressive models: each next token of the target."""
    return NextTokenObjective(
        model.network, bos=model.tokenizer.bos, label_smoothing=config.optim.label_smoothing
    )


RECIPE = Recipe(
    name="transformer",
    paper="Transformer (Vaswani et al., 2017)",
    paper_section="3",
    summary="The autoregressive encoder-decoder that all papers compare with; teacher and reranker.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    build=build,
    objective=objective,
)
