"""DiffuSeq without joint training (table 3): the source's embeddings are another model's, and fixed.

    noise2text train diffuseq-decoupled --train pairs.jsonl --valid pairs.jsonl --out runs/mine \\
        --set embeddings_from=runs/transformer

DiffuSeq's layout, schedule, times and sampling; only the target's embeddings are learned, and all terms count
the target alone. The paper takes a small BERT's; any model of the same tokens and dimension will do, such as
a Transformer (`width` is its dimension).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from noise2text.core.config import option
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Diffusion
from noise2text.models.init_embeddings import place_embeddings
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.decoupled_joint import DecoupledTransformer
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuseqSettings, objective

__all__ = ["PRESETS", "RECIPE", "DecoupledSettings", "begin", "build"]


@dataclass(frozen=True)
class DecoupledSettings(DiffuseqSettings):
    """DiffuSeq's, and where the source's embeddings come from."""

    coverage: str = option("target", "what the losses count, see diffuseq; the source's cannot be learned")
    embeddings_from: str = option(
        "", "the source's embeddings: a model folder of the same tokens, or a .npy table (V, d); none: random"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aligned:
            raise Problem("The setting aligned is not for diffuseq-decoupled: padding is no word there.")


PRESETS: dict[str, DecoupledSettings] = {
    name: DecoupledSettings(**(dataclasses.asdict(diffuseq.PRESETS[name]) | {"coverage": "target"}))
    for name in ("quasar-t", "qqp", "wiki-auto", "ccd", "tiny")
}


def build(settings: DecoupledSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system: DiffuSeq's, with another denoiser."""
    system = diffuseq.build(settings, tokenizer)
    system.denoiser = diffuseq.network(settings, tokenizer, DecoupledTransformer)
    return system


def begin(settings: DecoupledSettings, system: Diffusion) -> None:
    """Give the source the embeddings of another model, where one is named."""
    assert isinstance(system.denoiser, DecoupledTransformer)
    if settings.embeddings_from:
        place_embeddings(system.denoiser.foreign, system.tokenizer, Path(settings.embeddings_from))


RECIPE = Recipe(
    name="diffuseq-decoupled",
    paper="DiffuSeq (Gong et al., 2023)",
    section="4.3",
    line="DiffuSeq whose source has another model's embeddings, which are not trained.",
    presets=PRESETS,
    default="quasar-t",
    resolve=unchanged,
    build=build,
    objective=objective,
    start=begin,
)
