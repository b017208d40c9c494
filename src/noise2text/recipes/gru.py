"""GRU with attention (Cho et al., 2014; Bahdanau et al., 2015): the recurrent baseline of DiffuSeq's table 1.

    noise2text train gru --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset qqp

Ended layout + bidirectional GRU encoder, GRU decoder, dot-product attention; the surprise at each next
token; beam search. DiffuSeq's table 4 gives nothing of the shape but 65 million parameters, which `qqp`
has with BERT's vocabulary.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.autoregressive import AutoregressiveSettings
from noise2text.models import Autoregressive
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.embeddings import Space
from noise2text.nn.recurrent import GRU
from noise2text.training.config import TrainingSettings
from noise2text.training.next_token import NextToken

__all__ = ["PRESETS", "RECIPE", "GruSettings", "build", "objective"]


@dataclass(frozen=True)
class GruSettings(TrainingSettings):
    """The defaults have the size of DiffuSeq's table 4."""

    width: int = option(1536, "dimension of the states; each direction of the encoder has half of it")
    embedding: int = option(512, "dimension of the embeddings")
    layers: int = option(2, "layers of the encoder, and of the decoder")
    dropout: float = option(0.2, "dropout")
    label_smoothing: float = option(0.0, "share of the target's probability that is spread over all tokens")

    beam: int = option(5, "hypotheses of the beam search, as the model's default")
    length_penalty: float = option(1.0, "the power of the length in a score, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 1, "embedding", "layers", "beam")
        require_share(self, "dropout", "label_smoothing")
        if self.width < 2 or self.width % 2:
            raise Problem(f"The setting width must be even, half for each direction, not {self.width}.")


_QQP = GruSettings(vocabulary=30_522, lowercase=True, steps=50_000, warmup=4_000, weight_decay=0.0)

PRESETS: dict[str, GruSettings] = {
    "qqp": _QQP,
    "tiny": dataclasses.replace(
        _QQP,
        tokenizer="characters",
        width=128,
        embedding=64,
        layers=1,
        dropout=0.1,
        max_source=64,
        max_target=64,
        steps=600,
        tokens=2_048,
        learning_rate=3e-3,
        warmup=100,
        decay="cosine",
        log_every=50,
        validate_every=200,
        save_every=200,
        validation_sentences=100,
    ),
}


def build(settings: GruSettings, tokenizer: Tokenizer) -> Autoregressive:
    """The untrained system."""
    return Autoregressive(
        tokenizer,
        writer=GRU(
            Space(len(tokenizer), settings.embedding),
            width=settings.width,
            layers=settings.layers,
            dropout=settings.dropout,
        ),
        how=AutoregressiveSettings(beam=settings.beam, length_penalty=settings.length_penalty),
        max_source=settings.max_source,
        max_target=settings.max_target,
    )


def objective(settings: GruSettings, system: Autoregressive) -> NextToken:
    """What the system is trained on: each next token."""
    return NextToken(system.writer, bos=system.tokenizer.bos, label_smoothing=settings.label_smoothing)


RECIPE = Recipe(
    name="gru",
    paper="GRU with attention (Cho et al., 2014), as in DiffuSeq (Gong et al., 2023)",
    section="4.1",
    line="The recurrent encoder-decoder with attention, written from left to right.",
    presets=PRESETS,
    default="qqp",
    resolve=unchanged,
    build=build,
    objective=objective,
)
