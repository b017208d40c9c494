"""The Transformer (Vaswani et al., 2017) that diffusion is compared with: their teacher and reranker, too.

    noise2text train transformer --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

Ended layout + post-norm encoder-decoder that writes from left to right; label-smoothed surprise at each
next token; beam search. The shapes are those of Difformer's tables 3 and 4 (its table 21) and of the
thesis's 4.1.3.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option, require_heads, require_least, require_share
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveSettings
from noise2text.models import Autoregressive
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.causal_transformer import Transformer
from noise2text.nn.embeddings import Space
from noise2text.training.config import TrainingSettings
from noise2text.training.next_token import NextToken

__all__ = ["PRESETS", "RECIPE", "TransformerSettings", "build", "objective"]


@dataclass(frozen=True)
class TransformerSettings(TrainingSettings):
    """The defaults are Difformer's IWSLT14 column."""

    width: int = option(512, "d_model, and the dimension of the embeddings")
    ffn: int = option(1024, "d_ffn")
    heads: int = option(4, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that write the target")
    dropout: float = option(0.3, "dropout")
    label_smoothing: float = option(0.1, "share of the target's probability that is spread over all tokens")

    beam: int = option(5, "hypotheses of the beam search, as the model's default")
    length_penalty: float = option(1.0, "the power of the length in a score, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_heads(self)
        require_least(self, 1, "ffn", "beam", "encoder_layers", "decoder_layers")
        require_share(self, "dropout", "label_smoothing")


_IWSLT14 = TransformerSettings()
_BASE = dataclasses.replace(_IWSLT14, ffn=2048, heads=8, dropout=0.1, tokens=65_536, vocabulary=32_768)
_PARAPHRASE = dataclasses.replace(_BASE, width=768, ffn=3072, heads=12)

PRESETS: dict[str, TransformerSettings] = {
    "wmt14-en-de": _BASE,
    "wmt16-en-ro": _BASE,
    "iwslt14-de-en": _IWSLT14,
    "gigaword": _BASE,
    "qqp": dataclasses.replace(_PARAPHRASE, steps=50_000, tokens=8_192),
    "wiki-auto": dataclasses.replace(_PARAPHRASE, steps=30_000),
    "qt": dataclasses.replace(_PARAPHRASE, steps=100_000, learning_rate=3e-4, warmup=5_000),
    "covost": dataclasses.replace(_IWSLT14, vocabulary=30_000, max_source=64, max_target=64, beam=10),
    "tiny": dataclasses.replace(
        _IWSLT14,
        tokenizer="characters",
        width=128,
        ffn=512,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        max_source=64,
        max_target=64,
        steps=600,
        tokens=2_048,
        learning_rate=1e-3,
        warmup=100,
        decay="cosine",
        log_every=50,
        validate_every=200,
        save_every=200,
        validation_sentences=100,
    ),
}


def build(settings: TransformerSettings, tokenizer: Tokenizer) -> Autoregressive:
    """The untrained system."""
    writer = Transformer(
        Space(len(tokenizer), settings.width),
        ffn=settings.ffn,
        heads=settings.heads,
        encoder_layers=settings.encoder_layers,
        decoder_layers=settings.decoder_layers,
        dropout=settings.dropout,
        source_positions=settings.max_source,
        target_positions=settings.max_target + 1,  # the begin token is read, too
    )
    return Autoregressive(
        tokenizer,
        writer=writer,
        how=AutoregressiveSettings(beam=settings.beam, length_penalty=settings.length_penalty),
        max_source=settings.max_source,
        max_target=settings.max_target,
    )


def objective(settings: TransformerSettings, system: Autoregressive) -> NextToken:
    """What the system is trained on: each next token."""
    return NextToken(system.writer, bos=system.tokenizer.bos, label_smoothing=settings.label_smoothing)


RECIPE = Recipe(
    name="transformer",
    paper="Transformer (Vaswani et al., 2017)",
    section="3",
    line="The autoregressive encoder-decoder that all papers compare with; teacher and reranker.",
    presets=PRESETS,
    default="iwslt14-de-en",
    resolve=unchanged,
    build=build,
    objective=objective,
)
