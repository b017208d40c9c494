"""AR-Diffusion (Wu et al., 2023): the left of a sentence is denoised before its right.

    noise2text train ar-diffusion --train pairs.jsonl --valid pairs.jsonl --out runs/mine

Filled layout + encoder-decoder + Speeds(Sqrt): each position has its own time, and the network is told it;
vlb + rounding + prior. Generation goes down in few even steps of the sentence's time (skipping); MBR of many.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option, require_at_least
from noise2text.data.layouts.padded_target import PaddedTargetLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import MseLoss, NllLoss, PriorLoss, RoundingLoss
from noise2text.diffusion.schedules import SqrtSchedule, z0_noise_and_final_alpha
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.diffusion.token_speeds import TokenSpeeds
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.encoder_decoder_config import TINY, EncoderDecoderConfig, build_denoiser
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.training.objective import DiffusionObjective

__all__ = ["PRESETS", "RECIPE", "ARDiffusionConfig", "build", "objective"]


@dataclass(frozen=True)
class ARDiffusionConfig(EncoderDecoderConfig):
    """The released scripts; the defaults are those of IWSLT14 German–English."""

    max_source: int = option(256, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(89, "longest target in tokens; its canvas has one place more, for the end")
    steps: int = option(135_000, "how many updates to train")
    max_tokens: int = option(384 * 90, "padded tokens of the longer side in a batch")
    accumulate: int = option(8, "micro-batches an update; each has `tokens` tokens")
    lr: float = option(2e-3, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    weight_decay: float = option(0.0, "AdamW's decay of the weights")
    warmup: int = option(4_000, "steps over which the learning rate rises")
    clip_norm: float = option(0.0, "largest norm of the gradient; 0 leaves it alone")
    ema_decay: float = option(0.9999, "decay of the moving average of the weights, e.g. 0.999; 0 for none")

    embedding_dim: int = option(64, "d, the dimension of the diffusion")
    self_conditioning: float = option(0.0, "share of the steps trained with a guess; 0 is none")
    anchor_distance: float = option(
        2.0, "where the speeds' anchor lies, in lengths of the canvas; more is more even"
    )
    noise_beam: int = option(50, "candidates a sentence, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1.0, "anchor_distance")


_IWSLT14 = ARDiffusionConfig()
_SUMMARIES = dataclasses.replace(
    _IWSLT14,
    vocabulary=30_522,
    lowercase=True,
    max_source=512,
    max_target=49,
    steps=80_000,
    max_tokens=384 * 512,
    lr=8e-4,
    embedding_dim=128,
    ffn_dim=2048,
    heads=8,
)

PRESETS: dict[str, ARDiffusionConfig] = {
    "iwslt14-de-en": _IWSLT14,
    "xsum": _SUMMARIES,
    "cnn-dailymail": dataclasses.replace(_SUMMARIES, max_target=179, steps=100_000, max_tokens=400 * 512),
    "tiny": dataclasses.replace(
        _IWSLT14, **TINY | {"embedding_dim": 8, "accumulate": 1, "steps": 800, "validate_every": 400}
    ),
}


def build(config: ARDiffusionConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained system."""
    canvas = config.max_target + 1  # the target and its end
    return DiffusionModel(
        tokenizer,
        layout=PaddedTargetLayout(tokenizer.pad, eos=tokenizer.eos, width=canvas),
        denoiser=build_denoiser(
            config,
            TokenEmbedding(len(tokenizer), config.embedding_dim, scale=1.0, bias=True),
            positions=canvas,
        ),
        schedule=TokenSpeeds(
            SqrtSchedule(config.diffusion_steps), canvas, anchor_distance=config.anchor_distance
        ),
        generation_config=DiffusionGenerationConfig(
            steps=config.generation_steps, noise_beam=config.noise_beam
        ),
        max_source=config.max_source,
        max_target=config.max_target,
        writable_specials=(tokenizer.eos, tokenizer.pad),
    )


def objective(config: ARDiffusionConfig, model: DiffusionModel) -> DiffusionObjective:
    """What the system is trained on: Diffusion-LM's terms, at a time of its own for each position."""
    z0_noise, final_alpha = z0_noise_and_final_alpha(
        SqrtSchedule(config.diffusion_steps), config.diffusion_steps
    )
    return DiffusionObjective(
        model.denoiser,
        model.schedule,
        UniformTimes(config.diffusion_steps),
        terms={
            "vlb": MseLoss(),
            "rounding": RoundingLoss(),
            "prior": PriorLoss(final_alpha=final_alpha),
            "nll": NllLoss(),
        },
        weights={"vlb": 1.0, "rounding": 1.0, "prior": 1.0},
        self_conditioning=config.self_conditioning,
        z0_noise=z0_noise,
    )


RECIPE = Recipe(
    name="ar-diffusion",
    paper="AR-Diffusion (Wu et al., 2023)",
    section="3",
    summary="Positions move through time at different speeds, so that the left is written before the right.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    resolve=keep_config,
    build=build,
    objective=objective,
)
