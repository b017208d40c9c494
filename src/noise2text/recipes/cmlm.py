"""CMLM with mask-predict (Ghazvininejad et al., EMNLP 2019): masked target tokens are predicted in parallel.

    noise2text train cmlm --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

A transformer whose decoder attends in both directions, and a length predictor; cross-entropy of the masked
tokens + 0.1 · length. Generation predicts all tokens for several lengths, then the least certain ones again.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option, section
from noise2text.data.config import DataConfig
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.baseline_config import (
    LabelSmoothingOptimConfig,
    MaskPredictGenerationConfig,
    TransformerModelConfig,
)
from noise2text.models.cmlm import CMLMModel, CmlmObjective
from noise2text.models.presets import TINY_ITERATIVE
from noise2text.models.registry import Recipe
from noise2text.training.config import RunConfig

__all__ = [
    "PRESETS",
    "RECIPE",
    "CMLMConfig",
    "CMLMOptimConfig",
    "build",
    "objective",
]


@dataclass(frozen=True)
class CMLMOptimConfig(LabelSmoothingOptimConfig):
    """The optimizer, and the losses of masked tokens and of the length."""

    length_loss_weight: float = option(0.1, "weight of the length loss", minimum=0)


@dataclass(frozen=True)
class CMLMConfig(Config):
    """Section 4.1 of the paper."""

    data: DataConfig = section(DataConfig(vocabulary=32_768), "how texts become tokens")
    model: TransformerModelConfig = section(TransformerModelConfig(ffn_dim=2048, heads=8), "the network")
    optim: CMLMOptimConfig = section(
        CMLMOptimConfig(max_tokens=131_072, betas=(0.9, 0.999), average_best=5), "the optimizer and the loss"
    )
    generation: MaskPredictGenerationConfig = section(
        MaskPredictGenerationConfig(), "how the model generates"
    )
    run: RunConfig = section(RunConfig(best_by="loss"), "seed, hardware, logging")


_WMT = CMLMConfig()
_IWSLT14 = _WMT.replace(vocabulary=10_000, ffn_dim=1024, heads=4, max_tokens=8_192)

PRESETS: dict[str, CMLMConfig] = {
    "wmt14-en-de": _WMT,
    "wmt14-de-en": _WMT,
    "wmt16-en-ro": _WMT,
    "iwslt14-de-en": _IWSLT14,
    "iwslt14-en-de": _IWSLT14,
    "gigaword": _WMT.replace(max_tokens=65_536),  # run by Difformer, whose table 21 gives the batch
    "tiny": _WMT.replace(
        TINY_ITERATIVE | {"optim.steps": 1_500},
        max_tokens=1_536,
        betas=(0.9, 0.98),
        average_best=1,
        length_beam=1,
        validate_every=500,
        save_every=500,
        best_by="bleu",
    ),
}


def build(config: CMLMConfig, tokenizer: Tokenizer) -> CMLMModel:
    """The untrained model."""
    return CMLMModel(config, tokenizer)


def objective(config: CMLMConfig, model: CMLMModel) -> CmlmObjective:
    """The training objective: the masked tokens, and the length."""
    return CmlmObjective(
        model.transformer,
        model.lengths,
        mask=model.tokenizer.mask,
        label_smoothing=config.optim.label_smoothing,
        length_loss_weight=config.optim.length_loss_weight,
    )


RECIPE = Recipe(
    name="cmlm",
    paper="Mask-Predict (Ghazvininejad et al., 2019)",
    paper_section="2",
    summary="Conditional masked language model: tokens in parallel, the least certain ones again.",
    presets=PRESETS,
    default_preset="wmt14-en-de",
    build=build,
    objective=objective,
)
