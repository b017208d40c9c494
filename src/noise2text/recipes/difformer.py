"""Difformer (Gao et al., NAACL 2024): encoder-decoder, anchor loss, noise rescaling, length prediction.

    noise2text train difformer --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

Split layout + encoder-decoder with self-conditioning + Rescaled(schedule, F) in training only;
vlb + anchor + 0.1 · length; length beam × noise beam, then selection. F is the smallest factor whose
degeneration score is at most `dgs_max` for the task's vocabulary and embedding size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from noise2text.core.config import option, require_choice, require_heads, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.data.layouts.canvas import Split
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import Anchor, LengthNll, Mse, Nll, Rounding, Term
from noise2text.diffusion.rescaling import find_factor, random_embeddings, rescale_plain, rescale_preserving
from noise2text.diffusion.schedules import SCHEDULES, Schedule
from noise2text.diffusion.time_samplers import Uniform
from noise2text.generation.config import LengthSettings
from noise2text.models import LengthDiffusion
from noise2text.models.encoder_decoder_config import network
from noise2text.models.init_embeddings import place_embeddings
from noise2text.models.init_from_teacher import StudentSettings, start_from_teacher
from noise2text.models.registry import Recipe
from noise2text.nn.embeddings import Space
from noise2text.nn.length_predictor import Lengths
from noise2text.training.objective import DiffusionObjective

__all__ = ["PRESETS", "RECIPE", "DifformerSettings", "begin", "build", "objective", "resolve"]


@dataclass(frozen=True)
class DifformerSettings(StudentSettings):
    """Table 21's rows; the defaults are its IWSLT14 column."""

    width: int = option(512, "d_model")
    embedding: int = option(128, "d_emb, the dimension of the diffusion")
    ffn: int = option(1024, "d_ffn")
    heads: int = option(4, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that denoise the target")
    activation: str = option("relu", "relu")
    dropout: float = option(0.3, "dropout")

    diffusion_steps: int = option(2000, "T, the resolution of time in training")
    schedule: str = option("sqrt", "sqrt, linear or cosine")
    dgs_max: float = option(0.15, "the degeneration score that the noise factor must bring the schedule to")
    factor: float | None = option(None, "the noise factor F; none finds it by dgs_max; 1 is no rescaling")
    variance_preserving: bool = option(False, "rescale by eq. 8 instead of eq. 3")
    self_conditioning: float = option(0.5, "share of the steps trained with a guess; 0 is none")
    embeddings_from: str = option(
        "", "start from these embeddings: a model folder of the same tokens, or a .npy table (V, d)"
    )
    freeze_embeddings: bool = option(False, "do not train the embeddings (C.3)")
    losses: str = option("vlb+anchor", "terms joined by +: vlb, anchor, rounding")
    label_smoothing: float = option(0.1, "of the anchor loss")
    length_factor: float = option(0.1, "weight of the length loss")

    generation_steps: int = option(20, "K, the steps of generation, as the model's default")
    generation_stop_early: int = option(5, "how many of them are left out, as the model's default")
    length_beam: int = option(5, "b₁, as the model's default")
    noise_beam: int = option(2, "b₂, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_heads(self)
        require_choice(self, "schedule", SCHEDULES)
        require_choice(self, "activation", ("relu",))
        unknown = set(self.losses.split("+")) - set(_TERMS)
        if unknown:
            raise Problem(f"The setting losses joins {', '.join(_TERMS)} with +, not {self.losses!r}.")
        if self.losses == "rounding":
            raise Problem(
                "The setting losses needs vlb or anchor: rounding alone teaches the denoiser nothing."
            )
        require_share(self, "dropout", "label_smoothing", "self_conditioning")
        require_least(self, 1, "embedding", "ffn", "encoder_layers", "decoder_layers", "diffusion_steps")
        require_least(self, 1, "generation_steps", "length_beam", "noise_beam")
        require_least(self, 0, "length_factor")
        if not 0 <= self.generation_stop_early < self.generation_steps:
            raise Problem(
                f"The setting generation_stop_early must be between 0 and generation_steps - 1, not "
                f"{self.generation_stop_early}."
            )
        if self.from_folder and self.embeddings_from:
            raise Problem("Embeddings come from one model: set from_folder or embeddings_from, not both.")
        if self.factor is not None and not self.factor > 0:
            raise Problem(f"The setting factor must be above 0, not {self.factor}.")


_TERMS = ("vlb", "anchor", "rounding")

_IWSLT14 = DifformerSettings()
_WMT = dataclasses.replace(_IWSLT14, ffn=2048, heads=8, dropout=0.1, tokens=65_536, vocabulary=32_768)
_PARAPHRASE = dataclasses.replace(_WMT, width=768, ffn=3072, heads=12)

PRESETS: dict[str, DifformerSettings] = {
    "wmt14-en-de": _WMT,
    "wmt16-en-ro": _WMT,
    "iwslt14-de-en": _IWSLT14,
    "gigaword": _WMT,
    "qqp": dataclasses.replace(_PARAPHRASE, steps=50_000, tokens=8_192),
    "wiki-auto": dataclasses.replace(_PARAPHRASE, steps=30_000),
    "qt": dataclasses.replace(_PARAPHRASE, steps=100_000, dgs_max=0.20, learning_rate=3e-4, warmup=5_000),
    "tiny": dataclasses.replace(
        _IWSLT14,
        width=128,
        ffn=512,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.2,
        vocabulary=4_000,
        steps=3_000,
        tokens=1_024,
        learning_rate=1.5e-3,
        warmup=400,
        decay="cosine",
        log_every=100,
        validate_every=1_000,
        save_every=500,
        length_beam=1,  # where one length is right, MBR over others picks wrong ones (docs/compare.md)
    ),
}


def resolve(settings: DifformerSettings, tokenizer: Tokenizer) -> DifformerSettings:
    """The settings with their noise factor found, for this vocabulary and embedding size."""
    if settings.factor is not None:
        return settings
    found = find_factor(
        SCHEDULES[settings.schedule](settings.diffusion_steps),
        random_embeddings(len(tokenizer), settings.embedding),
        target=settings.dgs_max,
        rescale=rescale_preserving if settings.variance_preserving else rescale_plain,
    )
    return dataclasses.replace(settings, factor=found.factor)


def build(settings: DifformerSettings, tokenizer: Tokenizer) -> LengthDiffusion:
    """The untrained system."""
    space = Space(len(tokenizer), settings.embedding)
    space.table.requires_grad_(not settings.freeze_embeddings)
    schedule = SCHEDULES[settings.schedule](settings.diffusion_steps)
    denoiser = network(settings, space, positions=settings.max_target)
    return LengthDiffusion(
        tokenizer,
        layout=Split(tokenizer.pad),
        denoiser=denoiser,
        schedule=schedule,
        training=_rescaled(settings, schedule),
        lengths=Lengths(settings.width, longest=settings.max_target, source=settings.max_source),
        how=LengthSettings(
            steps=settings.generation_steps,
            stop_early=settings.generation_stop_early,
            length_beam=settings.length_beam,
            noise_beam=settings.noise_beam,
        ),
        max_source=settings.max_source,
        max_target=settings.max_target,
    )


def _rescaled(settings: DifformerSettings, schedule: Schedule) -> nn.Module:
    """The schedule of training; settings that were not resolved have no factor yet."""
    rescale = rescale_preserving if settings.variance_preserving else rescale_plain
    return rescale(schedule, settings.factor or 1.0)


def begin(settings: DifformerSettings, system: LengthDiffusion) -> None:
    """Take the embeddings of another model, or a teacher's layers, where that is asked for."""
    start_from_teacher(settings, system)
    if settings.embeddings_from:
        place_embeddings(system.denoiser.space, system.tokenizer, Path(settings.embeddings_from))


def objective(settings: DifformerSettings, system: LengthDiffusion) -> DiffusionObjective:
    """What the system is trained on: eq. 2, and the length."""
    assert settings.factor is not None, "resolve the settings first"
    known: dict[str, Term] = {
        "vlb": Mse(),
        "anchor": Anchor(smoothing=settings.label_smoothing),
        "rounding": Rounding(),
    }
    chosen = settings.losses.split("+")
    return DiffusionObjective(
        system.denoiser,
        _rescaled(settings, system.schedule),
        Uniform(settings.diffusion_steps),
        terms={name: known[name] for name in chosen} | {"length": LengthNll(system.lengths), "nll": Nll()},
        weights=dict.fromkeys(chosen, 1.0) | {"length": settings.length_factor},
        self_conditioning=settings.self_conditioning,
        always=["nll"] if "anchor" in chosen else [],  # beside the anchor it comes for nothing
    )


RECIPE = Recipe(
    name="difformer",
    paper="Difformer (Gao et al., 2024)",
    section="3",
    line="Encoder-decoder diffusion with anchor loss, noise rescaling and length beam.",
    presets=PRESETS,
    default="iwslt14-de-en",
    resolve=resolve,
    build=build,
    objective=objective,
    start=begin,
)
