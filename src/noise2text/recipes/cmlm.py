"""CMLM with mask-predict (Ghazvininejad et al., EMNLP 2019): hidden target tokens are predicted in parallel.

    noise2text train cmlm --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

Split layout + a transformer whose decoder looks both ways + length prediction; the surprise at the hidden
tokens + 0.1 · length. Generation predicts all tokens of several lengths, then the least certain ones again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from noise2text.core.config import option, require_at_least, require_divisible_heads, require_fraction
from noise2text.core.errors import Problem
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.layouts.template import Template, make_template
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.selection import BestScore, Selector
from noise2text.models import Model
from noise2text.models.baseline_config import MaskPredictGenerationConfig
from noise2text.models.cmlm import CmlmObjective, MaskPredictDecoder
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.draft_transformer import DraftTransformer
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.length_predictor import LengthPredictor, top_lengths
from noise2text.training.config import TrainingConfig

__all__ = [
    "PRESETS",
    "RECIPE",
    "CMLMConfig",
    "CMLMModel",
    "DraftTransformerConfig",
    "build",
    "build_draft_transformer",
    "forbidden_tokens",
    "objective",
]


@dataclass(frozen=True)
class DraftTransformerConfig(TrainingConfig):
    """A transformer of the base shape, trained as the papers of CMLM and the Levenshtein Transformer do."""

    model_dim: int = option(512, "of the transformer's states and embeddings")
    ffn_dim: int = option(2048, "width of the feed-forward networks")
    heads: int = option(8, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that read the draft")
    dropout: float = option(0.3, "dropout")
    label_smoothing: float = option(0.1, "share of the loss that is spread over the vocabulary")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisible_heads(self)
        require_at_least(self, 1, "ffn_dim", "encoder_layers", "decoder_layers")
        require_fraction(self, "dropout", "label_smoothing")


@dataclass(frozen=True)
class CMLMConfig(DraftTransformerConfig):
    """Section 4.1 of the paper."""

    max_tokens: int = option(131_072, "padded tokens of the longer side in a batch")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    average_best: int = option(5, "average the weights of so many best validations into the final model")
    best_by: str = option("loss", "what the best model is best in: bleu (generated) or loss")
    vocabulary: int = option(32_768, "how many tokens a learned BPE has")
    length_loss_weight: float = option(0.1, "weight of the length loss")
    iterations: int = option(10, "T, as the model's default")
    length_beam: int = option(5, "ℓ, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "iterations", "length_beam")
        require_at_least(self, 0, "length_loss_weight")


_WMT = CMLMConfig()

PRESETS: dict[str, CMLMConfig] = {
    "wmt14-en-de": _WMT,
    "wmt16-en-ro": _WMT,
    "iwslt14-de-en": dataclasses.replace(_WMT, ffn_dim=1024, heads=4, max_tokens=8_192, vocabulary=10_000),
    "tiny": dataclasses.replace(
        _WMT,
        tokenizer="characters",
        max_source=48,
        max_target=16,
        model_dim=128,
        ffn_dim=256,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        steps=1_500,
        max_tokens=1_536,
        lr=2e-3,
        betas=(0.9, 0.98),
        warmup=100,
        lr_schedule="cosine",
        average_best=1,
        best_by="bleu",
        length_beam=1,
        log_every=50,
        validate_every=500,
        save_every=500,
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
        self.max_source, self.max_target = config.max_source, config.max_target
        self.generation_config = MaskPredictGenerationConfig(
            iterations=config.iterations, length_beam=config.length_beam
        )
        self.transformer = build_draft_transformer(config, tokenizer, target_positions=config.max_target)
        self.lengths = LengthPredictor(
            config.model_dim, max_length=config.max_target, source=config.max_source
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
            raise Problem(
                f"The length must be at most {self.max_target}, this model's longest, not {length}."
            )
        lengths = torch.full_like(encoded.padding[:, :1], length, dtype=torch.long)
        return lengths, torch.zeros_like(lengths, dtype=torch.float)

    def selector(self, config: MaskPredictGenerationConfig) -> Selector:
        return BestScore()


def forbidden_tokens(tokenizer: Tokenizer) -> Tensor:
    """True for the tokens (V,) that are never written."""
    forbidden = torch.zeros(len(tokenizer), dtype=torch.bool)
    forbidden[sorted(tokenizer.special_tokens)] = True
    return forbidden


def build_draft_transformer(
    config: DraftTransformerConfig, tokenizer: Tokenizer, *, target_positions: int
) -> DraftTransformer:
    """The untrained network of these settings."""
    return DraftTransformer(
        TokenEmbedding(len(tokenizer), config.model_dim),
        model_dim=config.model_dim,
        ffn_dim=config.ffn_dim,
        heads=config.heads,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        dropout=config.dropout,
        source_positions=config.max_source,
        target_positions=target_positions,
    )


def build(config: CMLMConfig, tokenizer: Tokenizer) -> CMLMModel:
    """The untrained system."""
    return CMLMModel(config, tokenizer)


def objective(config: CMLMConfig, model: CMLMModel) -> CmlmObjective:
    """What the system is trained on: the hidden tokens, and the length."""
    return CmlmObjective(
        model.transformer,
        model.lengths,
        mask=model.tokenizer.mask,
        label_smoothing=config.label_smoothing,
        length_loss_weight=config.length_loss_weight,
    )


RECIPE = Recipe(
    name="cmlm",
    paper="Mask-Predict (Ghazvininejad et al., 2019)",
    section="2",
    summary="Conditional masked language model: tokens in parallel, the least certain ones again.",
    presets=PRESETS,
    default_preset="wmt14-en-de",
    resolve=keep_config,
    build=build,
    objective=objective,
)
