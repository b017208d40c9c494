"""DiffuSeq with autoregressive sampling (Demirag, 2023, 3.2.1, algorithm 8).

    noise2text train diffuseq-autoregressive --train pairs.jsonl --valid pairs.jsonl --out runs/mine

The training is exactly DiffuSeq's; generation keeps one token per round of sampling. Any other diffusion
model does the same with `--strategy token-by-token`.
"""

from __future__ import annotations

from noise2text.models.registry import Recipe
from noise2text.recipes import diffuseq
from noise2text.recipes.diffuseq import DiffuSeqConfig

__all__ = ["PRESETS", "RECIPE"]

PRESETS: dict[str, DiffuSeqConfig] = {
    "covost-de-en": diffuseq.PRESETS["covost-de-en"].replace(strategy="token-by-token"),
    "tiny": diffuseq.PRESETS["tiny"].replace(
        {"generation.steps": 5}, strategy="token-by-token", validate_every=1_400
    ),
    "small": diffuseq.PRESETS["small"].replace(
        {"generation.steps": 5}, strategy="token-by-token", noise_beam=1
    ),
}

RECIPE = Recipe(
    name="diffuseq-autoregressive",
    paper=diffuseq.DEMIRAG_2023,
    paper_section="3.2.1",
    summary="DiffuSeq, sampled token by token: each new token is given in the next round.",
    presets=PRESETS,
    default_preset="covost-de-en",
    build=diffuseq.build,
    objective=diffuseq.objective,
)
