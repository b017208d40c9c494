"""The Transformer (Vaswani et al., 2017) that diffusion is compared with: their teacher and reranker, too.

    noise2text train transformer --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

Ended layout + post-norm encoder-decoder that writes from left to right; label-smoothed surprise at each
next token; beam search. The shapes are those of Difformer's tables 3 and 4 (its table 21) and of the
thesis's 4.1.3.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option, require_at_least, require_divisible_heads, require_fraction
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveGenerationConfig
from noise2text.models import AutoregressiveModel
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.causal_transformer import Transformer
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.training.config import TrainingConfig
from noise2text.training.next_token import NextTokenObjective

__all__ = ["PRESETS", "RECIPE", "TransformerConfig", "build", "objective"]


@dataclass(frozen=True)
class TransformerConfig(TrainingConfig):
    """The defaults are Difformer's IWSLT14 column."""

    model_dim: int = option(512, "d_model, and the dimension of the embeddings")
    ffn_dim: int = option(1024, "d_ffn")
    heads: int = option(4, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that write the target")
    dropout: float = option(0.3, "dropout")
    label_smoothing: float = option(0.1, "share of the target's probability that is spread over all tokens")

    beam: int = option(5, "hypotheses of the beam search, as the model's default")
    length_penalty: float = option(1.0, "the power of the length in a score, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisible_heads(self)
        require_at_least(self, 1, "ffn_dim", "beam", "encoder_layers", "decoder_layers")
        require_fraction(self, "dropout", "label_smoothing")


_IWSLT14 = TransformerConfig()
_BASE = dataclasses.replace(
    _IWSLT14, ffn_dim=2048, heads=8, dropout=0.1, max_tokens=65_536, vocabulary=32_768
)
_PARAPHRASE = dataclasses.replace(_BASE, model_dim=768, ffn_dim=3072, heads=12)

PRESETS: dict[str, TransformerConfig] = {
    "wmt14-en-de": _BASE,
    "wmt16-en-ro": _BASE,
    "iwslt14-de-en": _IWSLT14,
    "gigaword": _BASE,
    "qqp": dataclasses.replace(_PARAPHRASE, steps=50_000, max_tokens=8_192),
    "wiki-auto": dataclasses.replace(_PARAPHRASE, steps=30_000),
    "qt": dataclasses.replace(_PARAPHRASE, steps=100_000, lr=3e-4, warmup=5_000),
    "covost": dataclasses.replace(_IWSLT14, vocabulary=30_000, max_source=64, max_target=64, beam=10),
    "tiny": dataclasses.replace(
        _IWSLT14,
        tokenizer="characters",
        model_dim=128,
        ffn_dim=512,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        max_source=64,
        max_target=64,
        steps=600,
        max_tokens=2_048,
        lr=1e-3,
        warmup=100,
        lr_schedule="cosine",
        log_every=50,
        validate_every=200,
        save_every=200,
        validation_sentences=100,
    ),
}


def build(config: TransformerConfig, tokenizer: Tokenizer) -> AutoregressiveModel:
    """The untrained system."""
    network = Transformer(
        TokenEmbedding(len(tokenizer), config.model_dim),
        ffn_dim=config.ffn_dim,
        heads=config.heads,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        dropout=config.dropout,
        source_positions=config.max_source,
        target_positions=config.max_target + 1,  # the begin token is read, too
    )
    return AutoregressiveModel(
        tokenizer,
        network=network,
        generation_config=AutoregressiveGenerationConfig(
            beam=config.beam, length_penalty=config.length_penalty
        ),
        max_source=config.max_source,
        max_target=config.max_target,
    )


def objective(config: TransformerConfig, model: AutoregressiveModel) -> NextTokenObjective:
    """What the system is trained on: each next token."""
    return NextTokenObjective(model.network, bos=model.tokenizer.bos, label_smoothing=config.label_smoothing)


RECIPE = Recipe(
    name="transformer",
    paper="Transformer (Vaswani et al., 2017)",
    section="3",
    summary="The autoregressive encoder-decoder that all papers compare with; teacher and reranker.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    resolve=keep_config,
    build=build,
    objective=objective,
)
