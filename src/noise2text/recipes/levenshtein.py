"""The Levenshtein Transformer (Gu et al., NeurIPS 2019): refine a draft by deletion and insertion.

    noise2text train levenshtein --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

A transformer whose decoder attends in both directions, with heads that delete tokens, insert placeholders and
fill them; the three losses of imitating the oracle. Generation starts from an empty draft and ends when
nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option, section
from noise2text.data.config import DataConfig
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.baseline_config import (
    LabelSmoothingOptimConfig,
    LevenshteinGenerationConfig,
    TransformerModelConfig,
)
from noise2text.models.levenshtein import LevenshteinModel
from noise2text.models.levenshtein_objective import LevenshteinObjective
from noise2text.models.presets import TINY_ITERATIVE
from noise2text.models.registry import Recipe
from noise2text.training.config import RunConfig

__all__ = [
    "PRESETS",
    "RECIPE",
    "LevenshteinConfig",
    "LevenshteinModelConfig",
    "LevenshteinOptimConfig",
    "build",
    "objective",
]


@dataclass(frozen=True)
class LevenshteinModelConfig(TransformerModelConfig):
    """A transformer of the base shape with heads for the edits."""

    max_placeholders: int = option(
        255, "largest number of placeholders that a gap gets in an iteration", minimum=1
    )


@dataclass(frozen=True)
class LevenshteinOptimConfig(LabelSmoothingOptimConfig):
    """The optimizer, and the losses of the edits."""

    empty_draft_rate: float = option(
        0.0, "β, share of the pairs whose insertion starts from an empty draft", minimum=0, maximum=1
    )


@dataclass(frozen=True)
class LevenshteinConfig(Config):
    """Section 4.1 of the paper, and the released code where the paper does not say."""

    data: DataConfig = section(DataConfig(vocabulary=32_768), "how texts become tokens")
    model: LevenshteinModelConfig = section(LevenshteinModelConfig(ffn_dim=2048, heads=8), "the network")
    optim: LevenshteinOptimConfig = section(
        LevenshteinOptimConfig(max_tokens=65_536), "the optimizer and the loss"
    )
    generation: LevenshteinGenerationConfig = section(
        LevenshteinGenerationConfig(), "how the model generates"
    )
    run: RunConfig = section(RunConfig(), "seed, hardware, logging")


_WMT = LevenshteinConfig()

PRESETS: dict[str, LevenshteinConfig] = {
    "wmt14-en-de": _WMT,
    "wmt16-ro-en": _WMT,
    "gigaword": _WMT,
    "qqp": _WMT.replace({"optim.steps": 50_000}),  # DiffuSeq gives no steps for it: these are its own
    "quasar-t": _WMT.replace({"optim.steps": 40_000}),
    "wiki-auto": _WMT.replace({"optim.steps": 80_000}),
    "commonsense-conversation": _WMT.replace({"optim.steps": 140_000}),
    "iwslt14-de-en": _WMT.replace(vocabulary=10_000, ffn_dim=1024, heads=4, max_tokens=8_192),
    "covost-de-en": _WMT.replace(  # Demirag: "the parameters as given in the paper", batches of 128
        vocabulary=30_000, normalize=True, max_source=64, max_target=64, max_tokens=128 * 64
    ),
    "tiny": _WMT.replace(
        TINY_ITERATIVE | {"optim.steps": 1_400},
        max_placeholders=16,
        max_tokens=1_024,
        validate_every=350,
        save_every=350,
    ),
}


def build(config: LevenshteinConfig, tokenizer: Tokenizer) -> LevenshteinModel:
    """The untrained model."""
    return LevenshteinModel(config, tokenizer)


def objective(config: LevenshteinConfig, model: LevenshteinModel) -> LevenshteinObjective:
    """The training objective: the oracle's edits."""
    return LevenshteinObjective(
        model.policies,
        model.special_tokens,
        forbidden=model.forbidden,
        label_smoothing=config.optim.label_smoothing,
        empty_draft_rate=config.optim.empty_draft_rate,
    )


RECIPE = Recipe(
    name="levenshtein",
    paper="Levenshtein Transformer (Gu et al., 2019)",
    paper_section="3",
    summary="Refines a draft by deleting tokens, opening gaps and filling them, until nothing changes.",
    presets=PRESETS,
    default_preset="wmt14-en-de",
    build=build,
    objective=objective,
)
