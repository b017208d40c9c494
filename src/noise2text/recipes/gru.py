"""GRU with attention (Cho et al., 2014; Bahdanau et al., 2015): the recurrent baseline of DiffuSeq's table 1.

    noise2text train gru --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset qqp

Bidirectional GRU encoder, GRU decoder, dot-product attention, over a target with an end token; cross-entropy
of each next token; beam search. Of the shape, DiffuSeq's table 4 gives only the 65 million parameters, which
`qqp` has with BERT's vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option, section
from noise2text.core.errors import Problem
from noise2text.data.config import DataConfig
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.config import AutoregressiveGenerationConfig
from noise2text.models import AutoregressiveModel
from noise2text.models.baseline_config import LabelSmoothingOptimConfig
from noise2text.models.presets import TINY_AUTOREGRESSIVE
from noise2text.models.registry import Recipe
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.recurrent import GRU
from noise2text.recipes.transformer import objective
from noise2text.training.config import RunConfig

__all__ = ["PRESETS", "RECIPE", "GRUConfig", "GRUModelConfig", "build"]


@dataclass(frozen=True)
class GRUModelConfig(Config):
    """The defaults have the size of DiffuSeq's table 4."""

    model_dim: int = option(1536, "dimension of the states; each direction of the encoder has half of it")
    embedding_dim: int = option(512, "dimension of the embeddings", minimum=1)
    layers: int = option(2, "layers of the encoder, and of the decoder", minimum=1)
    dropout: float = option(0.2, "dropout", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        if self.model_dim < 2 or self.model_dim % 2:
            raise Problem(
                f"The setting model_dim must be even, half for each direction, not {self.model_dim}."
            )


@dataclass(frozen=True)
class GRUConfig(Config):
    """The GRU without label smoothing."""

    data: DataConfig = section(DataConfig(), "how texts become tokens")
    model: GRUModelConfig = section(GRUModelConfig(), "the network")
    optim: LabelSmoothingOptimConfig = section(
        LabelSmoothingOptimConfig(label_smoothing=0.0), "the optimizer and the loss"
    )
    generation: AutoregressiveGenerationConfig = section(
        AutoregressiveGenerationConfig(), "how the model generates"
    )
    run: RunConfig = section(RunConfig(), "seed, hardware, logging")


_QQP = GRUConfig().replace(
    {"optim.steps": 50_000}, vocabulary=30_522, lowercase=True, warmup=4_000, weight_decay=0.0
)

PRESETS: dict[str, GRUConfig] = {  # DiffuSeq gives no steps for its baselines: these are its own
    "qqp": _QQP,
    "quasar-t": _QQP.replace({"optim.steps": 40_000}),
    "wiki-auto": _QQP.replace({"optim.steps": 80_000}),
    "commonsense-conversation": _QQP.replace({"optim.steps": 140_000}),
    "tiny": _QQP.replace(
        TINY_AUTOREGRESSIVE | {"optim.steps": 600},
        embedding_dim=64,
        layers=1,
        dropout=0.1,
        lr=3e-3,
        validate_every=200,
    ),
}


def build(config: GRUConfig, tokenizer: Tokenizer) -> AutoregressiveModel:
    """The untrained model."""
    return AutoregressiveModel(
        tokenizer,
        network=GRU(
            TokenEmbedding(len(tokenizer), config.model.embedding_dim),
            model_dim=config.model.model_dim,
            layers=config.model.layers,
            dropout=config.model.dropout,
        ),
        generation_config=config.generation,
        max_source=config.data.max_source,
        max_target=config.data.max_target,
    )


RECIPE = Recipe(
    name="gru",
    paper="GRU with attention (Cho et al., 2014), as in DiffuSeq (Gong et al., 2023)",
    paper_section="4.1",
    summary="The recurrent encoder-decoder with attention; autoregressive.",
    presets=PRESETS,
    default_preset="qqp",
    build=build,
    objective=objective,
)
