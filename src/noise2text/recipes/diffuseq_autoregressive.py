"""DiffuSeq with autoregressive sampling (thesis on DiffuSeq for translation, 3.2.1, algorithm 8).

    noise2text train diffuseq-autoregressive --train pairs.jsonl --valid pairs.jsonl --out runs/mine

Trained like DiffuSeq, to the last bit; generation fixes one token a walk (`strategy`). A model that was
trained as any other system generates so with `--strategy token-by-token`.
"""

from __future__ import annotations

import dataclasses

from noise2text.data.tokenizer import Tokenizer
from noise2text.models import DiffusionModel
from noise2text.models.registry import Recipe, keep_config
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuSeqConfig

__all__ = ["PRESETS", "RECIPE", "build"]

PRESETS: dict[str, DiffuSeqConfig] = {
    "covost-de-en": diffuseq.PRESETS["covost-de-en"],
    "tiny": dataclasses.replace(diffuseq.PRESETS["tiny"], generation_steps=5, validate_every=1_400),
}


def build(config: DiffuSeqConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained system."""
    model = diffuseq.build(config, tokenizer)
    model.generation_config = dataclasses.replace(model.generation_config, strategy="token-by-token")
    return model


RECIPE = Recipe(
    name="diffuseq-autoregressive",
    paper="a thesis on DiffuSeq for translation",
    section="3.2.1",
    summary="DiffuSeq, sampled token by token: what is written once is held from then on.",
    presets=PRESETS,
    default_preset="covost-de-en",
    resolve=keep_config,
    build=build,
    objective=diffuseq.objective,
)
