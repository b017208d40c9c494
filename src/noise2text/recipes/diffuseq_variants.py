"""Variants of DiffuSeq for machine translation (Demirag, 2023): other outputs, another schedule, guidance.

    noise2text train diffuseq-epsilon --train pairs.jsonl --valid pairs.jsonl --out runs/mine

Each is DiffuSeq with other settings of one part: what the network predicts (2.1.4), in which order the
positions are noised (3.2.5), and whether it is also trained without sources, for guidance (2.1.6). `--set`
combines them.
"""

from __future__ import annotations

from typing import Any

from noise2text.models.registry import Recipe
from noise2text.recipes import diffuseq

__all__ = ["RECIPES"]


def _variant(
    name: str,
    paper_section: str,
    summary: str,
    variant: dict[str, Any],
    tiny: dict[str, Any],
    small: dict[str, Any],
) -> Recipe:
    """A recipe with DiffuSeq's presets for CoVoST, dates and short texts, with the changed settings.

    `tiny` are the settings that make it learn dates in minutes; `tiny-published` is without them. `small` are
    those that make it learn 20,000 pairs of short sentences.
    """
    presets = diffuseq.PRESETS
    published = presets["tiny"].replace(variant)
    return Recipe(
        name=name,
        paper=diffuseq.DEMIRAG_2023,
        paper_section=paper_section,
        summary=summary,
        presets={
            "covost-de-en": presets["covost-de-en"].replace(variant),
            "tiny": published.replace(tiny),
            **({"tiny-published": published} if tiny else {}),
            "small": presets["small"].replace(variant | small),
        },
        default_preset="covost-de-en",
        build=diffuseq.build,
        objective=diffuseq.objective,
    )


RECIPES = (
    _variant(
        "diffuseq-epsilon",
        "2.1.4",
        "DiffuSeq that predicts the noise.",
        {"parameterization": "epsilon"},
        {"optim.steps": 4_500, "min_alpha_bar": 0.03},
        {
            "optim.steps": 9_900,
            "generation.steps": 1,
            "parameterization": "residual-epsilon",
            "loss_weighting": "z0",
            "min_alpha_bar": 0.14,
        },
    ),
    _variant(
        "diffuseq-score",
        "2.1.4",
        "DiffuSeq by score matching.",
        {"parameterization": "score"},
        {
            "parameterization": "residual-score",
            "loss_weighting": "z0",
            "noise_factor": 2.0,
            "min_alpha_bar": 0.14,
            "anchor_weight": 1.0,
            "clamp": False,
        },
        {
            "optim.steps": 10_400,
            "embedding_dim": 16,
            "parameterization": "residual-score",
            "loss_weighting": "z0",
            "noise_factor": 2.0,
            "min_alpha_bar": 0.14,
        },
    ),
    _variant(
        "diffuseq-mean",
        "2.1.4",
        "DiffuSeq that predicts the mean of the next step.",
        {"parameterization": "mean"},
        {
            "generation.steps": 8,
            "num_timesteps": 8,
            "loss_weighting": "z0",
            "anchor_weight": 1.0,
            "align_targets": True,
            "clamp": False,
        },
        {
            "optim.steps": 15_400,
            "generation.steps": 8,
            "num_timesteps": 8,
            "embedding_dim": 16,
            "noise_factor": 1.0,
            "loss_weighting": "z0",
        },
    ),
    _variant(
        "diffuseq-guided",
        "2.1.6",
        "DiffuSeq with classifier-free guidance: trained with and without the source.",
        {"source_dropout": 0.1, "guidance_weight": 0.5},
        {},
        {},
    ),
    _variant(
        "diffuseq-position-sigmoid",
        "3.2.5",
        "DiffuSeq with a sigmoid schedule per position: the last token is noised first.",
        {"schedule": "position-sigmoid", "source_dropout": 0.5},
        {"optim.steps": 4_000, "source_dropout": 0.0},
        {"source_dropout": 0.0},
    ),
)
