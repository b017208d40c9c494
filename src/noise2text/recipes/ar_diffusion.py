"""AR-Diffusion (Wu et al., 2023): tokens on the left are denoised before those on the right.

    noise2text train ar-diffusion --train pairs.jsonl --valid pairs.jsonl --out runs/mine

Padded target layout + encoder-decoder + TokenSpeeds(SqrtSchedule): each position has its own time, which is
the timestep that the network is given; vlb + rounding + prior. Generation takes a few evenly spaced steps of
the sentence's time (skipping) and selects one of many candidates by MBR.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option, section
from noise2text.data.config import DataConfig
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.config_groups import SelfConditioningConfig, TimeSamplerConfig
from noise2text.diffusion.losses import MseLoss, NllLoss, PriorLoss, RoundingLoss
from noise2text.diffusion.schedules import SqrtSchedule
from noise2text.diffusion.solvers import NoiselessArrivalSolver, Solver
from noise2text.diffusion.token_speed_schedule import TokenSpeeds
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.presets import SMALL_DIFFUSION, TINY_DIFFUSION
from noise2text.models.registry import Recipe
from noise2text.nn.config import EncoderDecoderConfig
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.recipes.seqdiffuseq import build_model
from noise2text.training.config import OptimConfig, RunConfig
from noise2text.training.objective import DiffusionObjective

__all__ = ["PRESETS", "RECIPE", "ARDiffusionConfig", "build", "objective"]


@dataclass(frozen=True)
class ARDiffusionDiffusionConfig(SelfConditioningConfig, TimeSamplerConfig):
    """Diffusion-LM's noise, at a separate time for each position."""

    self_conditioning: float = 0.0
    anchor_distance: float = option(
        2.0,
        "position of the anchor point, in lengths of the canvas; larger makes the speeds more equal",
        minimum=1,
    )


@dataclass(frozen=True)
class ARDiffusionGenerationConfig(DiffusionGenerationConfig):
    """Skipping, rounding at each step, and MBR whose candidate is the reference of the others."""

    steps: int = 20
    noise_beam: int = option(50, "noise samples per sentence")
    clamp: bool = True
    candidate_is: str = "reference"
    self_pair: bool = False

    def build_solver(self, seed: int) -> Solver:
        usual = super().build_solver(seed)
        return NoiselessArrivalSolver(usual.stochasticity, usual.order)


@dataclass(frozen=True)
class ARDiffusionConfig(Config):
    """The released scripts; the defaults are those of IWSLT14 German–English."""

    data: DataConfig = section(DataConfig(max_source=256, max_target=89), "how texts become tokens")
    model: EncoderDecoderConfig = section(
        EncoderDecoderConfig(model_dim=256, embedding_dim=64), "the network"
    )
    diffusion: ARDiffusionDiffusionConfig = section(ARDiffusionDiffusionConfig(), "noise and loss")
    optim: OptimConfig = section(
        OptimConfig(
            steps=67_500,
            max_tokens=384 * 90,
            accumulate=8,
            lr=2e-3,
            betas=(0.9, 0.999),
            weight_decay=0.0,
            lr_schedule="linear",
            warmup=4_000,
            clip_norm=0.0,
        ),
        "the optimizer",
    )
    generation: ARDiffusionGenerationConfig = section(ARDiffusionGenerationConfig(), "how it generates")
    run: RunConfig = section(RunConfig(), "seed, hardware, logging")


_IWSLT14 = ARDiffusionConfig()
_SUMMARIES = _IWSLT14.replace(
    {"optim.steps": 26_667},
    vocabulary=30_522,
    lowercase=True,
    max_source=512,
    max_target=49,
    max_tokens=384 * 512,
    lr=8e-4,
    ema_decay=0.9997,  # 0.9999 for each of three micro-batches
    model_dim=512,
    embedding_dim=128,
    ffn_dim=2048,
    heads=8,
)

PRESETS: dict[str, ARDiffusionConfig] = {
    "iwslt14-de-en": _IWSLT14,
    "iwslt14-en-de": _IWSLT14.replace({"optim.steps": 51_000}, max_source=90, max_tokens=768 * 90, lr=1.8e-3),
    "xsum": _SUMMARIES,
    "cnn-dailymail": _SUMMARIES.replace(
        {"optim.steps": 20_000}, max_target=179, max_tokens=400 * 512, ema_decay=0.9995
    ),
    "tiny": _IWSLT14.replace(
        TINY_DIFFUSION | {"optim.steps": 800}, embedding_dim=8, accumulate=1, validate_every=400, clamp=False
    ),
}
PRESETS["small"] = PRESETS["tiny"].replace(SMALL_DIFFUSION, embedding_dim=16)


def build(config: ARDiffusionConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained model."""
    embedding = TokenEmbedding(len(tokenizer), config.model.embedding_dim, scale=1.0, bias=True)
    schedule = TokenSpeeds(
        SqrtSchedule(config.diffusion.num_timesteps),
        config.data.max_target + 1,  # with the end token
        anchor_distance=config.diffusion.anchor_distance,
    )
    return build_model(config, tokenizer, embedding, schedule)


def objective(config: ARDiffusionConfig, model: DiffusionModel) -> DiffusionObjective:
    """The training objective: Diffusion-LM's terms, at a separate time for each position."""
    start = SqrtSchedule(config.diffusion.num_timesteps)
    return DiffusionObjective(
        model.denoiser,
        model.schedule,
        config.diffusion.build_time_sampler().to(model.device),
        terms=[MseLoss(), RoundingLoss(), PriorLoss(final_alpha=start.final_alpha), NllLoss(weight=None)],
        self_conditioning=config.diffusion.self_conditioning,
        z0_noise=start.z0_noise,
    )


RECIPE = Recipe(
    name="ar-diffusion",
    paper="AR-Diffusion (Wu et al., 2023)",
    paper_section="3",
    summary="Positions are denoised at different speeds, the left before the right.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    build=build,
    objective=objective,
)
