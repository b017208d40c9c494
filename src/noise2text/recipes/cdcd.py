"""CDCD (Dieleman et al., 2022): continuous diffusion for categorical data, trained by cross-entropy.

    noise2text train cdcd --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

Filled layout + encoder-decoder with self-conditioning and a vocabulary head (score interpolation) +
embeddings on a sphere + Warped(Exponential); the loss is the cross-entropy of the tokens, which also warps
time. Generation is Euler's method on the probability flow, in even steps of warped time.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option, require_at_least
from noise2text.core.errors import Problem
from noise2text.data.layouts.padded_target import PaddedTargetLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import NllLoss
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.diffusion.time_warping import ExponentialSchedule, WarpedSchedule
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.encoder_decoder_config import TINY, EncoderDecoderConfig, build_denoiser
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.spherical_embeddings import SphericalEmbedding
from noise2text.nn.vocabulary_head import InterpolatingEncoderDecoder
from noise2text.recipes.seqdiffuseq import AdaptiveObjective

__all__ = ["PRESETS", "RECIPE", "CDCDConfig", "build", "objective"]


@dataclass(frozen=True)
class CDCDConfig(EncoderDecoderConfig):
    """The paper's translation models, as far as docs/cdcd.md says."""

    max_target: int = option(63, "longest target in tokens; its canvas has one place more, for the end")
    vocabulary: int = option(32_768, "how many tokens a learned BPE has")
    steps: int = option(1_000_000, "how many updates to train")
    max_tokens: int = option(65_536, "padded tokens of the longer side in a batch")
    lr: float = option(1e-4, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.99), "Adam's β")
    weight_decay: float = option(0.0, "AdamW's decay of the weights")
    lr_schedule: str = option(
        "cosine", "how the learning rate falls: inverse-sqrt, linear, cosine or constant"
    )
    ema_decay: float = option(0.9999, "decay of the moving average of the weights, e.g. 0.999; 0 for none")

    model_dim: int = option(1024, "of the transformer's states")
    embedding_dim: int = option(256, "d, the dimension of the diffusion")
    ffn_dim: int = option(4096, "width of the feed-forward networks")
    heads: int = option(8, "attention heads")
    dropout: float = option(0.1, "dropout")

    sigma_min: float = option(1.0, "t_min, the least noise a unit of signal")
    sigma_max: float = option(300.0, "t_max, the most")
    warp_every: int = option(1_000, "steps between two fits of the time warp; 0 leaves log noise even")
    warp_bin_size: int = option(20, "how many diffusion steps share a bin of losses")
    warp_min_count: int = option(50, "losses that each bin needs before time is warped")
    generation_steps: int = option(200, "the steps of generation, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 0, "warp_every")
        require_at_least(self, 1, "warp_bin_size", "warp_min_count")
        if self.diffusion_steps % self.warp_bin_size or self.diffusion_steps < 2 * self.warp_bin_size:
            raise Problem(
                f"The setting diffusion_steps must be a multiple of warp_stride and at least twice it, "
                f"not {self.diffusion_steps} of {self.warp_bin_size}."
            )
        if not 0 < self.sigma_min < self.sigma_max:
            raise Problem(
                f"The setting sigma_min must be above 0 and below noise_high, not {self.sigma_min} "
                f"of {self.sigma_max}."
            )
        if self.average_best > 1 and self.warp_every:
            raise Problem(
                f"The setting average_best must be 1, not {self.average_best}, where time is warped: weights before "
                f"and after a fit belong to different schedules; use ema instead."
            )


_WMT14 = CDCDConfig()

PRESETS: dict[str, CDCDConfig] = {
    "wmt14-en-de": _WMT14,
    "iwslt14-de-en": dataclasses.replace(
        _WMT14,
        vocabulary=10_000,
        model_dim=512,
        ffn_dim=1024,
        heads=4,
        dropout=0.3,
        max_tokens=8_192,
        steps=300_000,
    ),
    "tiny": dataclasses.replace(
        _WMT14,
        **TINY
        | {
            "sigma_min": 0.2,
            "sigma_max": 30.0,
            "warp_every": 200,
            "generation_steps": 20,
            "steps": 600,
            "validate_every": 300,
            "save_every": 300,
        },
    ),
}


def build(config: CDCDConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained system."""
    canvas = config.max_target + 1  # the target and its end
    start = ExponentialSchedule(
        config.diffusion_steps, sigma_min=config.sigma_min, sigma_max=config.sigma_max
    )
    return DiffusionModel(
        tokenizer,
        layout=PaddedTargetLayout(tokenizer.pad, eos=tokenizer.eos, width=canvas),
        denoiser=build_denoiser(
            config,
            SphericalEmbedding(len(tokenizer), config.embedding_dim),
            positions=canvas,
            network_class=InterpolatingEncoderDecoder,
        ),
        schedule=WarpedSchedule(start, bin_size=config.warp_bin_size, min_count=config.warp_min_count),
        generation_config=DiffusionGenerationConfig(
            steps=config.generation_steps, noise_beam=config.noise_beam, eta=0.0
        ),
        max_source=config.max_source,
        max_target=config.max_target,
        writable_specials=(tokenizer.eos, tokenizer.pad),
    )


def objective(config: CDCDConfig, model: DiffusionModel) -> AdaptiveObjective:
    """What the system is trained on: the cross-entropy of the canvas; that of its text warps time."""
    assert isinstance(model.layout, PaddedTargetLayout)
    return AdaptiveObjective(
        model.denoiser,
        model.schedule,
        UniformTimes(config.diffusion_steps),
        terms={"nll": NllLoss(), "difficulty": NllLoss(positions=model.layout.non_padding_mask)},
        weights={"nll": 1.0},
        self_conditioning=config.self_conditioning,
        refit_every=config.warp_every,
        refit_start=config.warp_every,
    )


RECIPE = Recipe(
    name="cdcd",
    paper="CDCD (Dieleman et al., 2022)",
    section="3",
    summary="Cross-entropy over the vocabulary, score interpolation, and time warped by the loss.",
    presets=PRESETS,
    default_preset="wmt14-en-de",
    resolve=keep_config,
    build=build,
    objective=objective,
)
