"""CDCD (Dieleman et al., 2022): continuous diffusion for categorical data, trained by cross-entropy.

    noise2text train cdcd --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

Padded target layout + encoder-decoder with self-conditioning and a vocabulary head (score interpolation) +
embeddings on a sphere + WarpedSchedule(ExponentialSchedule); the loss is the cross-entropy of the tokens,
which also warps time. Generation is Euler's method on the probability flow, in even steps of warped time.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option, section
from noise2text.core.errors import Problem
from noise2text.data.config import DataConfig
from noise2text.data.layouts.padded_target import PaddedTargetLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.config_groups import SelfConditioningConfig, TimestepsConfig, require_whole_bins
from noise2text.diffusion.losses import NllLoss
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.diffusion.warped_schedule import ExponentialSchedule, WarpedSchedule
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.presets import SMALL_DIFFUSION, TINY_DIFFUSION
from noise2text.models.registry import Recipe
from noise2text.nn.config import EncoderDecoderConfig
from noise2text.nn.spherical_embeddings import SphericalEmbedding
from noise2text.nn.vocabulary_head import InterpolatingEncoderDecoder
from noise2text.recipes.seqdiffuseq import build_model
from noise2text.training.adaptive_objective import AdaptiveObjective
from noise2text.training.config import OptimConfig, RunConfig

__all__ = ["PRESETS", "RECIPE", "CDCDConfig", "build", "objective"]


@dataclass(frozen=True)
class CDCDDiffusionConfig(SelfConditioningConfig, TimestepsConfig):
    """Noise levels, and how time is warped by the loss."""

    sigma_min: float = option(1.0, "t_min, smallest ratio of noise to signal")
    sigma_max: float = option(300.0, "t_max, largest ratio of noise to signal")
    warp_every: int = option(
        1_000, "updates between two fits of the time warp; 0 keeps log σ linear in time", minimum=0
    )
    warp_bin_size: int = option(20, "diffusion steps that share a bin of losses", minimum=1)
    warp_min_count: int = option(50, "losses that each bin needs before a fit", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole_bins(self, "warp_bin_size")
        if not 0 < self.sigma_min < self.sigma_max:
            raise Problem(
                f"The setting sigma_min must be above 0 and below sigma_max, not {self.sigma_min} "
                f"of {self.sigma_max}."
            )


@dataclass(frozen=True)
class CDCDConfig(Config):
    """The paper's translation models; docs/notebook/cdcd.md says what differs."""

    data: DataConfig = section(DataConfig(max_target=63, vocabulary=32_768), "how texts become tokens")
    model: EncoderDecoderConfig = section(
        EncoderDecoderConfig(model_dim=1024, embedding_dim=256, ffn_dim=4096, heads=8, dropout=0.1),
        "the network",
    )
    diffusion: CDCDDiffusionConfig = section(CDCDDiffusionConfig(), "noise and loss")
    optim: OptimConfig = section(
        OptimConfig(
            steps=1_000_000,
            max_tokens=65_536,
            lr=1e-4,
            betas=(0.9, 0.99),
            weight_decay=0.0,
            lr_schedule="cosine",
            ema_decay=0.9999,
        ),
        "the optimizer",
    )
    generation: DiffusionGenerationConfig = section(
        DiffusionGenerationConfig(steps=200, eta=0.0), "how it generates"
    )
    run: RunConfig = section(RunConfig(), "seed, hardware, logging")

    def __post_init__(self) -> None:
        if self.optim.average_best > 1 and self.diffusion.warp_every:
            raise Problem(
                f"The setting average_best must be 1, not {self.optim.average_best}, where time is warped: "
                f"weights before and after a fit belong to different schedules; set ema_decay."
            )


_WMT14 = CDCDConfig()

PRESETS: dict[str, CDCDConfig] = {
    "wmt14-en-de": _WMT14,
    "wmt14-de-en": _WMT14,
    "iwslt14-de-en": _WMT14.replace(
        {"optim.steps": 300_000},
        vocabulary=10_000,
        model_dim=512,
        ffn_dim=1024,
        heads=4,
        dropout=0.3,
        max_tokens=8_192,
    ),
    "tiny": _WMT14.replace(
        TINY_DIFFUSION | {"optim.steps": 600, "generation.steps": 20},
        sigma_min=0.2,
        sigma_max=30.0,
        warp_every=200,
        validate_every=300,
        save_every=300,
    ),
}
PRESETS["small"] = PRESETS["tiny"].replace(SMALL_DIFFUSION)


def build(config: CDCDConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained model."""
    diffusion = config.diffusion
    embedding = SphericalEmbedding(len(tokenizer), config.model.embedding_dim)
    start = ExponentialSchedule(
        diffusion.num_timesteps, sigma_min=diffusion.sigma_min, sigma_max=diffusion.sigma_max
    )
    schedule = WarpedSchedule(start, bin_size=diffusion.warp_bin_size, min_count=diffusion.warp_min_count)
    return build_model(config, tokenizer, embedding, schedule, InterpolatingEncoderDecoder)


def objective(config: CDCDConfig, model: DiffusionModel) -> AdaptiveObjective:
    """The training objective: the cross-entropy of the canvas; without padding, it also warps time."""
    assert isinstance(model.layout, PaddedTargetLayout)
    return AdaptiveObjective(
        model.denoiser,
        model.schedule,
        UniformTimes(config.diffusion.num_timesteps),
        terms=[
            NllLoss(),
            NllLoss("difficulty", None, always_computed=True, make_mask=model.layout.non_padding_mask),
        ],
        self_conditioning=config.diffusion.self_conditioning,
        observed_term="difficulty",
        refit_every=config.diffusion.warp_every,
        refit_start=config.diffusion.warp_every,
    )


RECIPE = Recipe(
    name="cdcd",
    paper="CDCD (Dieleman et al., 2022)",
    paper_section="3",
    summary="Cross-entropy over the vocabulary, score interpolation, and time warped by the loss.",
    presets=PRESETS,
    default_preset="wmt14-en-de",
    build=build,
    objective=objective,
)
