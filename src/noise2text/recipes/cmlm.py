"""CMLM with mask-predict (Ghazvininejad et al., EMNLP 2019): masked target tokens are predicted in parallel.

    noise2text train cmlm --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

A transformer whose decoder attends in both directions, and a length predictor; cross-entropy of the masked
tokens + 0.1 · length. Generation predicts all tokens for several lengths, then the least certain ones again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from noise2text.core.config import Config, option, require_at_least, section
from noise2text.core.errors import Problem
from noise2text.data.config import DataConfig
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.layouts.template import Template, make_template
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import Model
from noise2text.models.baseline_config import (
    LabelSmoothingOptimConfig,
    MaskPredictGenerationConfig,
    TransformerModelConfig,
)
from noise2text.models.cmlm import CmlmObjective, MaskPredictDecoder
from noise2text.models.registry import Recipe
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.draft_transformer import DraftTransformer
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.length_predictor import LengthPredictor, top_lengths
from noise2text.training.config import RunConfig

__all__ = [
    "PRESETS",
    "RECIPE",
    "CMLMConfig",
    "CMLMModel",
    "CMLMOptimConfig",
    "build",
    "build_draft_transformer",
    "forbidden_tokens",
    "objective",
]


@dataclass(frozen=True)
class CMLMOptimConfig(LabelSmoothingOptimConfig):
    """The optimizer, and the losses of masked tokens and of the length."""

    length_loss_weight: float = option(0.1, "weight of the length loss")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 0, "length_loss_weight")


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

PRESETS: dict[str, CMLMConfig] = {
    "wmt14-en-de": _WMT,
    "wmt16-en-ro": _WMT,
    "iwslt14-de-en": _WMT.replace(vocabulary=10_000, ffn_dim=1024, heads=4, max_tokens=8_192),
    "tiny": _WMT.replace(
        {"optim.steps": 1_500},
        tokenizer="characters",
        max_source=48,
        max_target=16,
        model_dim=128,
        ffn_dim=256,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        max_tokens=1_536,
        lr=2e-3,
        betas=(0.9, 0.98),
        lr_schedule="cosine",
        warmup=100,
        average_best=1,
        length_beam=1,
        log_every=50,
        validate_every=500,
        save_every=500,
        best_by="bleu",
        validation_sentences=100,
    ),
}


class CMLMModel(Model):
    """A masked language model of the target that predicts its length first."""

    layout: SplitLayout
    generation_config: MaskPredictGenerationConfig

    def __init__(self, config: CMLMConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer, self.layout = tokenizer, SplitLayout(tokenizer.pad)
        self.max_source, self.max_target = config.data.max_source, config.data.max_target
        self.generation_config = config.generation
        self.transformer = build_draft_transformer(
            config.model, tokenizer, source_positions=self.max_source, target_positions=self.max_target
        )
        self.lengths = LengthPredictor(
            config.model.model_dim, max_length=self.max_target, source=self.max_source
        )
        self.register_buffer("forbidden", forbidden_tokens(tokenizer), persistent=False)

    forbidden: Tensor

    def build_decoder(self, config: MaskPredictGenerationConfig) -> MaskPredictDecoder:
        template = make_template(config, self.tokenizer, config.length or self.max_target)
        return MaskPredictDecoder(
            self.transformer,
            self.layout,
            config,
            propose_lengths=partial(self._propose, config=config, template=template),
            mask=self.tokenizer.mask,
            forbidden=self.forbidden,
            template=template,
        )

    def _propose(
        self, encoded: EncoderOutput, config: MaskPredictGenerationConfig, template: Template
    ) -> tuple[Tensor, Tensor]:
        length = template.min_length if template.is_exact and config.length is None else config.length
        if length is None:
            return self.lengths.propose(encoded, config.length_beam, top_lengths)
        if length > self.max_target:
            raise Problem(f"The length must be at most {self.max_target} for this model, not {length}.")
        lengths = torch.full_like(encoded.padding[:, :1], length, dtype=torch.long)
        return lengths, torch.zeros_like(lengths, dtype=torch.float)

    def build_selector(self, config: MaskPredictGenerationConfig) -> Selector:
        return BestScore()


def forbidden_tokens(tokenizer: Tokenizer) -> Tensor:
    """True for the tokens (V,) that are never generated."""
    forbidden = torch.zeros(len(tokenizer), dtype=torch.bool)
    forbidden[sorted(tokenizer.special_tokens)] = True
    return forbidden


def build_draft_transformer(
    config: TransformerModelConfig, tokenizer: Tokenizer, *, source_positions: int, target_positions: int
) -> DraftTransformer:
    """The untrained network of this shape, for sources and targets of these maximal lengths."""
    return DraftTransformer(
        TokenEmbedding(len(tokenizer), config.model_dim),
        model_dim=config.model_dim,
        ffn_dim=config.ffn_dim,
        heads=config.heads,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        dropout=config.dropout,
        source_positions=source_positions,
        target_positions=target_positions,
    )


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
