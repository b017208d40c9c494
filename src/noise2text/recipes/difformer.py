"""Difformer (Gao et al., NAACL 2024): encoder-decoder, anchor loss, noise rescaling, length prediction.

    noise2text train difformer --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

Split layout + encoder-decoder with self-conditioning + Rescaled(schedule, F) in training only;
vlb + anchor + 0.1 · length; length beam × noise beam, then selection. F is the smallest factor whose
degeneration score is at most `max_dgs` for the task's vocabulary and embedding size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from noise2text.core.config import (
    option,
    require_at_least,
    require_choice,
    require_divisible_heads,
    require_fraction,
)
from noise2text.core.errors import Problem
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import AnchorLoss, LengthLoss, LossTerm, MseLoss, NllLoss, RoundingLoss
from noise2text.diffusion.rescaling import find_factor, random_embeddings, rescale_plain, rescale_preserving
from noise2text.diffusion.schedules import SCHEDULES, Schedule
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.generation.config import LengthPredictingGenerationConfig
from noise2text.models import LengthPredictingModel
from noise2text.models.encoder_decoder_config import build_denoiser
from noise2text.models.init_embeddings import load_embeddings
from noise2text.models.init_from_teacher import StudentConfig, initialize_from_teacher
from noise2text.models.registry import Recipe
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.length_predictor import LengthPredictor
from noise2text.training.objective import DiffusionObjective

__all__ = ["PRESETS", "RECIPE", "DifformerConfig", "build", "initialize", "objective", "resolve"]


@dataclass(frozen=True)
class DifformerConfig(StudentConfig):
    """Table 21's rows; the defaults are its IWSLT14 column."""

    model_dim: int = option(512, "d_model")
    embedding_dim: int = option(128, "d_emb, the dimension of the diffusion")
    ffn_dim: int = option(1024, "d_ffn")
    heads: int = option(4, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that denoise the target")
    activation: str = option("relu", "relu")
    dropout: float = option(0.3, "dropout")

    diffusion_steps: int = option(2000, "T, the resolution of time in training")
    schedule: str = option("sqrt", "sqrt, linear or cosine")
    max_dgs: float = option(0.15, "the degeneration score that the noise factor must bring the schedule to")
    noise_factor: float | None = option(
        None, "the noise factor F; none finds it by dgs_max; 1 is no rescaling"
    )
    variance_preserving: bool = option(False, "rescale by eq. 8 instead of eq. 3")
    self_conditioning: float = option(0.5, "share of the steps trained with a guess; 0 is none")
    embeddings_from: str = option(
        "", "start from these embeddings: a model folder of the same tokens, or a .npy table (V, d)"
    )
    freeze_embeddings: bool = option(False, "do not train the embeddings (C.3)")
    losses: str = option("vlb+anchor", "terms joined by +: vlb, anchor, rounding")
    label_smoothing: float = option(0.1, "of the anchor loss")
    length_loss_weight: float = option(0.1, "weight of the length loss")

    generation_steps: int = option(20, "K, the steps of generation, as the model's default")
    generation_stop_early: int = option(5, "how many of them are left out, as the model's default")
    length_beam: int = option(5, "b₁, as the model's default")
    noise_beam: int = option(2, "b₂, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisible_heads(self)
        require_choice(self, "schedule", SCHEDULES)
        require_choice(self, "activation", ("relu",))
        unknown = set(self.losses.split("+")) - set(_TERMS)
        if unknown:
            raise Problem(f"The setting losses joins {', '.join(_TERMS)} with +, not {self.losses!r}.")
        if self.losses == "rounding":
            raise Problem(
                "The setting losses needs vlb or anchor: rounding alone teaches the denoiser nothing."
            )
        require_fraction(self, "dropout", "label_smoothing", "self_conditioning")
        require_at_least(
            self, 1, "embedding_dim", "ffn_dim", "encoder_layers", "decoder_layers", "diffusion_steps"
        )
        require_at_least(self, 1, "generation_steps", "length_beam", "noise_beam")
        require_at_least(self, 0, "length_loss_weight")
        if not 0 <= self.generation_stop_early < self.generation_steps:
            raise Problem(
                f"The setting generation_stop_early must be between 0 and generation_steps - 1, not "
                f"{self.generation_stop_early}."
            )
        if self.from_folder and self.embeddings_from:
            raise Problem("Embeddings come from one model: set from_folder or embeddings_from, not both.")
        if self.noise_factor is not None and not self.noise_factor > 0:
            raise Problem(f"The setting factor must be above 0, not {self.noise_factor}.")


_TERMS = ("vlb", "anchor", "rounding")

_IWSLT14 = DifformerConfig()
_WMT = dataclasses.replace(_IWSLT14, ffn_dim=2048, heads=8, dropout=0.1, max_tokens=65_536, vocabulary=32_768)
_PARAPHRASE = dataclasses.replace(_WMT, model_dim=768, ffn_dim=3072, heads=12)

PRESETS: dict[str, DifformerConfig] = {
    "wmt14-en-de": _WMT,
    "wmt16-en-ro": _WMT,
    "iwslt14-de-en": _IWSLT14,
    "gigaword": _WMT,
    "qqp": dataclasses.replace(_PARAPHRASE, steps=50_000, max_tokens=8_192),
    "wiki-auto": dataclasses.replace(_PARAPHRASE, steps=30_000),
    "qt": dataclasses.replace(_PARAPHRASE, steps=100_000, max_dgs=0.20, lr=3e-4, warmup=5_000),
    "tiny": dataclasses.replace(
        _IWSLT14,
        model_dim=128,
        ffn_dim=512,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.2,
        vocabulary=4_000,
        steps=3_000,
        max_tokens=1_024,
        lr=1.5e-3,
        warmup=400,
        lr_schedule="cosine",
        log_every=100,
        validate_every=1_000,
        save_every=500,
        length_beam=1,  # where one length is right, MBR over others picks wrong ones (docs/compare.md)
    ),
}


def resolve(config: DifformerConfig, tokenizer: Tokenizer) -> DifformerConfig:
    """The settings with their noise factor found, for this vocabulary and embedding size."""
    if config.noise_factor is not None:
        return config
    found = find_factor(
        SCHEDULES[config.schedule](config.diffusion_steps),
        random_embeddings(len(tokenizer), config.embedding_dim),
        target=config.max_dgs,
        rescale=rescale_preserving if config.variance_preserving else rescale_plain,
    )
    return dataclasses.replace(config, noise_factor=found.factor)


def build(config: DifformerConfig, tokenizer: Tokenizer) -> LengthPredictingModel:
    """The untrained system."""
    embedding = TokenEmbedding(len(tokenizer), config.embedding_dim)
    embedding.weight.requires_grad_(not config.freeze_embeddings)
    schedule = SCHEDULES[config.schedule](config.diffusion_steps)
    denoiser = build_denoiser(config, embedding, positions=config.max_target)
    return LengthPredictingModel(
        tokenizer,
        layout=SplitLayout(tokenizer.pad),
        denoiser=denoiser,
        schedule=schedule,
        training_schedule=_rescaled(config, schedule),
        lengths=LengthPredictor(config.model_dim, max_length=config.max_target, source=config.max_source),
        generation_config=LengthPredictingGenerationConfig(
            steps=config.generation_steps,
            stop_early=config.generation_stop_early,
            length_beam=config.length_beam,
            noise_beam=config.noise_beam,
        ),
        max_source=config.max_source,
        max_target=config.max_target,
    )


def _rescaled(config: DifformerConfig, schedule: Schedule) -> nn.Module:
    """The schedule of training; settings that were not resolved have no factor yet."""
    rescale = rescale_preserving if config.variance_preserving else rescale_plain
    return rescale(schedule, config.noise_factor or 1.0)


def initialize(config: DifformerConfig, model: LengthPredictingModel) -> None:
    """Take the embeddings of another model, or a teacher's layers, where that is asked for."""
    initialize_from_teacher(config, model)
    if config.embeddings_from:
        load_embeddings(model.denoiser.embedding, model.tokenizer, Path(config.embeddings_from))


def objective(config: DifformerConfig, model: LengthPredictingModel) -> DiffusionObjective:
    """What the system is trained on: eq. 2, and the length."""
    assert config.noise_factor is not None, "resolve the settings first"
    loss_terms: dict[str, LossTerm] = {
        "vlb": MseLoss(),
        "anchor": AnchorLoss(smoothing=config.label_smoothing),
        "rounding": RoundingLoss(),
    }
    chosen = config.losses.split("+")
    return DiffusionObjective(
        model.denoiser,
        _rescaled(config, model.schedule),
        UniformTimes(config.diffusion_steps),
        terms={name: loss_terms[name] for name in chosen}
        | {"length": LengthLoss(model.lengths), "nll": NllLoss()},
        weights=dict.fromkeys(chosen, 1.0) | {"length": config.length_loss_weight},
        self_conditioning=config.self_conditioning,
        always_computed=["nll"] if "anchor" in chosen else [],  # beside the anchor it comes for nothing
    )


RECIPE = Recipe(
    name="difformer",
    paper="Difformer (Gao et al., 2024)",
    section="3",
    summary="Encoder-decoder diffusion with anchor loss, noise rescaling and length beam.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    resolve=resolve,
    build=build,
    objective=objective,
    initialize=initialize,
)
