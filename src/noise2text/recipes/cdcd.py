"""CDCD (Dieleman et al., 2022): continuous diffusion for categorical data, trained by cross-entropy.

    noise2text train cdcd --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset wmt14-en-de

Filled layout + encoder-decoder with self-conditioning and a vocabulary head (score interpolation) +
embeddings on a sphere + Warped(Exponential); the loss is the cross-entropy of the tokens, which also warps
time. Generation is Euler's method on the probability flow, in even steps of warped time.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option, require_least
from noise2text.core.errors import Problem
from noise2text.data.layouts.padded_target import Filled
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import Nll
from noise2text.diffusion.time_samplers import Uniform
from noise2text.diffusion.time_warping import Exponential, Warped
from noise2text.generation.config import DiffusionSettings
from noise2text.models import Diffusion
from noise2text.models.encoder_decoder_config import TINY, EncoderDecoderSettings, network
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.spherical_embeddings import Sphere
from noise2text.nn.vocabulary_head import InterpolatingEncoderDecoder
from noise2text.recipes.seqdiffuseq import AdaptiveObjective

__all__ = ["PRESETS", "RECIPE", "CdcdSettings", "build", "objective"]


@dataclass(frozen=True)
class CdcdSettings(EncoderDecoderSettings):
    """The paper's translation models, as far as docs/cdcd.md says."""

    max_target: int = option(63, "longest target in tokens; its canvas has one place more, for the end")
    vocabulary: int = option(32_768, "how many tokens a learned BPE has")
    steps: int = option(1_000_000, "how many updates to train")
    tokens: int = option(65_536, "padded tokens of the longer side in a batch")
    learning_rate: float = option(1e-4, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.99), "Adam's β")
    weight_decay: float = option(0.0, "AdamW's decay of the weights")
    decay: str = option("cosine", "how the learning rate falls: inverse-sqrt, linear, cosine or constant")
    ema: float = option(0.9999, "decay of the moving average of the weights, e.g. 0.999; 0 for none")

    width: int = option(1024, "of the transformer's states")
    embedding: int = option(256, "d, the dimension of the diffusion")
    ffn: int = option(4096, "width of the feed-forward networks")
    heads: int = option(8, "attention heads")
    dropout: float = option(0.1, "dropout")

    noise_low: float = option(1.0, "t_min, the least noise a unit of signal")
    noise_high: float = option(300.0, "t_max, the most")
    warp_every: int = option(1_000, "steps between two fits of the time warp; 0 leaves log noise even")
    warp_stride: int = option(20, "how many diffusion steps share a bin of losses")
    warp_least: int = option(50, "losses that each bin needs before time is warped")
    generation_steps: int = option(200, "the steps of generation, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 0, "warp_every")
        require_least(self, 1, "warp_stride", "warp_least")
        if self.diffusion_steps % self.warp_stride or self.diffusion_steps < 2 * self.warp_stride:
            raise Problem(
                f"The setting diffusion_steps must be a multiple of warp_stride and at least twice it, "
                f"not {self.diffusion_steps} of {self.warp_stride}."
            )
        if not 0 < self.noise_low < self.noise_high:
            raise Problem(
                f"The setting noise_low must be above 0 and below noise_high, not {self.noise_low} "
                f"of {self.noise_high}."
            )
        if self.average > 1 and self.warp_every:
            raise Problem(
                f"The setting average must be 1, not {self.average}, where time is warped: weights before "
                f"and after a fit belong to different schedules; use ema instead."
            )


_WMT14 = CdcdSettings()

PRESETS: dict[str, CdcdSettings] = {
    "wmt14-en-de": _WMT14,
    "iwslt14-de-en": dataclasses.replace(
        _WMT14, vocabulary=10_000, width=512, ffn=1024, heads=4, dropout=0.3, tokens=8_192, steps=300_000
    ),
    "tiny": dataclasses.replace(
        _WMT14,
        **TINY
        | {
            "noise_low": 0.2,
            "noise_high": 30.0,
            "warp_every": 200,
            "generation_steps": 20,
            "steps": 600,
            "validate_every": 300,
            "save_every": 300,
        },
    ),
}


def build(settings: CdcdSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system."""
    canvas = settings.max_target + 1  # the target and its end
    start = Exponential(settings.diffusion_steps, low=settings.noise_low, high=settings.noise_high)
    return Diffusion(
        tokenizer,
        layout=Filled(tokenizer.pad, eos=tokenizer.eos, width=canvas),
        denoiser=network(
            settings,
            Sphere(len(tokenizer), settings.embedding),
            positions=canvas,
            kind=InterpolatingEncoderDecoder,
        ),
        schedule=Warped(start, stride=settings.warp_stride, least=settings.warp_least),
        how=DiffusionSettings(steps=settings.generation_steps, noise_beam=settings.noise_beam, eta=0.0),
        max_source=settings.max_source,
        max_target=settings.max_target,
        written=(tokenizer.eos, tokenizer.pad),
    )


def objective(settings: CdcdSettings, system: Diffusion) -> AdaptiveObjective:
    """What the system is trained on: the cross-entropy of the canvas; that of its text warps time."""
    assert isinstance(system.layout, Filled)
    return AdaptiveObjective(
        system.denoiser,
        system.schedule,
        Uniform(settings.diffusion_steps),
        terms={"nll": Nll(), "difficulty": Nll(over=system.layout.spoken)},
        weights={"nll": 1.0},
        self_conditioning=settings.self_conditioning,
        refit_every=settings.warp_every,
        refit_first=settings.warp_every,
    )


RECIPE = Recipe(
    name="cdcd",
    paper="CDCD (Dieleman et al., 2022)",
    section="3",
    line="Cross-entropy over the vocabulary, score interpolation, and time warped by the loss.",
    presets=PRESETS,
    default="wmt14-en-de",
    resolve=unchanged,
    build=build,
    objective=objective,
)
