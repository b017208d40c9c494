"""DiNoiSer (Ye et al., 2023): noise clipped from below in training, and exaggerated in generation.

    noise2text train dinoiser --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

Split layout + encoder-decoder with self-conditioning + embeddings on a sphere + QuadraticSchedule with
ClippedTimes; vlb + rounding + 0.1 · length. Generation is DDIM with eta 0; the timestep that the network is
given runs from 1 to `min_timestep` only, while the noise goes down to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noise2text.core.config import Config, option, section
from noise2text.data.config import DataConfig
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.config_groups import SelfConditioningConfig, TimestepsConfig
from noise2text.diffusion.losses import LOSS_AVERAGES, LengthLoss, MseLoss, NllLoss, RoundingLoss
from noise2text.diffusion.noise_clipping import ClippedTimes, ExaggeratedNoise
from noise2text.diffusion.schedules import QuadraticSchedule, Schedule
from noise2text.generation.config import LengthPredictingGenerationConfig
from noise2text.models import LengthPredictingModel
from noise2text.models.presets import SMALL_DIFFUSION, TINY_DIFFUSION
from noise2text.models.registry import Recipe
from noise2text.nn.config import EncoderDecoderConfig, build_encoder_decoder
from noise2text.nn.length_predictor import LengthPredictor
from noise2text.nn.spherical_embeddings import SphericalEmbedding
from noise2text.training.config import OptimConfig, RunConfig
from noise2text.training.objective import DiffusionObjective

__all__ = [
    "PRESETS",
    "RECIPE",
    "ClippedObjective",
    "DiNoiSerConfig",
    "DiNoiSerGenerationConfig",
    "DiNoiSerModel",
    "build",
    "objective",
]


@dataclass(frozen=True)
class DiNoiSerGenerationConfig(LengthPredictingGenerationConfig):
    """Length prediction, deterministic steps, and exaggerated timesteps for the network."""

    stop_early: int = 0
    noise_beam: int = 1
    eta: float = 0.0
    select: str = option(
        "mbr-by-length",
        "how to select: mbr-by-length (within each length, then among the winners), mbr, or score (mean "
        "log-probability of the tokens, and of the length)",
        # No weighted-mbr: the time of the denoising likelihood may be clipped in training.
        choices=("mbr", "mbr-by-length", "score"),
    )
    utility: str = "bleu-corpus"
    self_pair: bool = False
    min_timestep: float = option(
        0.99,
        "smallest timestep that the network is given, whatever the noise; 0 is the true one",
        minimum=0,
        maximum=1,
    )


@dataclass(frozen=True)
class DiNoiSerDiffusionConfig(SelfConditioningConfig, TimestepsConfig):
    """Noise that is clipped from below."""

    noise_clip_margin: float = option(
        0.0, "added to the smallest noise-to-signal ratio of training", minimum=0
    )
    noise_clip_every: int = option(
        100, "updates between two measurements of the embeddings' distances", minimum=1
    )
    length_loss_weight: float = option(0.1, "weight of the length loss", minimum=0)
    loss_average: str = option(
        "sentences",
        "what the losses are means of: sentences, each of which weighs the same, or tokens",
        choices=tuple(LOSS_AVERAGES),
    )


@dataclass(frozen=True)
class DiNoiSerConfig(Config):
    """The released scripts; the defaults are those of IWSLT14."""

    data: DataConfig = section(DataConfig(), "how texts become tokens")
    model: EncoderDecoderConfig = section(EncoderDecoderConfig(embedding_dim=16), "the network")
    diffusion: DiNoiSerDiffusionConfig = section(DiNoiSerDiffusionConfig(), "noise and loss")
    optim: OptimConfig = section(OptimConfig(max_tokens=32_768, warmup=4_000, clip_norm=0.0), "the optimizer")
    generation: DiNoiSerGenerationConfig = section(DiNoiSerGenerationConfig(), "how it generates")
    run: RunConfig = section(RunConfig(), "seed, hardware, logging")


_IWSLT14 = DiNoiSerConfig()
_WMT = _IWSLT14.replace(
    embedding_dim=64, ffn_dim=2048, heads=8, dropout=0.1, max_tokens=131_072, vocabulary=32_768
)

PRESETS: dict[str, DiNoiSerConfig] = {
    "iwslt14-de-en": _IWSLT14,
    "wmt14-en-de": _WMT.replace(noise_clip_margin=1.0),
    "wmt16-en-ro": _WMT.replace(dropout=0.05),
    "tiny": _IWSLT14.replace(
        TINY_DIFFUSION | {"optim.steps": 800}, validate_every=400, save_every=400, length_beam=1
    ),
}
PRESETS["small"] = PRESETS["tiny"].replace(SMALL_DIFFUSION, embedding_dim=32, length_beam=2, noise_beam=5)


class DiNoiSerModel(LengthPredictingModel):
    """A diffusion model that predicts lengths and gives its network timesteps of more noise than there is."""

    def build_sampling_schedule(self, config: Any) -> Schedule:
        return ExaggeratedNoise(super().build_sampling_schedule(config), config.min_timestep)


class ClippedObjective(DiffusionObjective):
    """A diffusion objective whose times are clipped by the distances between embeddings."""

    time_sampler: ClippedTimes

    def __init__(self, *parts: Any, noise_clip_every: int, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.noise_clip_every = noise_clip_every
        self.time_sampler.clip(self.denoiser.embedding.vectors)

    def adapt(self, step: int) -> None:
        """Clip the times again after every `noise_clip_every` steps."""
        if step % self.noise_clip_every == 0:
            self.time_sampler.clip(self.denoiser.embedding.vectors)


def build(config: DiNoiSerConfig, tokenizer: Tokenizer) -> DiNoiSerModel:
    """The untrained model."""
    data = config.data
    return DiNoiSerModel(
        tokenizer,
        layout=SplitLayout(tokenizer.pad),
        denoiser=build_encoder_decoder(
            config.model,
            SphericalEmbedding(len(tokenizer), config.model.embedding_dim),
            source_positions=data.max_source,
            target_positions=data.max_target,
        ),
        schedule=QuadraticSchedule(config.diffusion.num_timesteps),
        length_predictor=LengthPredictor(
            config.model.model_dim, max_length=data.max_target, max_source=data.max_source
        ),
        generation_config=config.generation,
        max_source=data.max_source,
        max_target=data.max_target,
    )


def objective(config: DiNoiSerConfig, model: DiNoiSerModel) -> ClippedObjective:
    """The training objective: the error of ẑ₀ at clipped times, the rounding of z₀, and the length."""
    diffusion, schedule = config.diffusion, model.schedule
    assert isinstance(schedule, QuadraticSchedule)
    average = LOSS_AVERAGES[diffusion.loss_average]
    return ClippedObjective(
        model.denoiser,
        model.schedule,
        ClippedTimes(schedule, margin=diffusion.noise_clip_margin).to(model.device),
        terms=[
            average(MseLoss()),
            average(RoundingLoss()),
            LengthLoss(weight=diffusion.length_loss_weight, length_predictor=model.lengths),
            NllLoss(weight=None),
        ],
        self_conditioning=diffusion.self_conditioning,
        noise_clip_every=diffusion.noise_clip_every,
    )


RECIPE = Recipe(
    name="dinoiser",
    paper="DiNoiSer (Ye et al., 2023)",
    paper_section="4",
    summary="Training noise clipped by the distances between embeddings, exaggerated in generation.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    build=build,
    objective=objective,
)
