"""DiNoiSer (Ye et al., 2023): noise clipped from below in training, and exaggerated in generation.

    noise2text train dinoiser --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

Split layout + encoder-decoder with self-conditioning + embeddings on a sphere + Quadratic schedule with
Clipped times; vlb + rounding + 0.1 · length. Generation is DDIM with eta 0; the network is told times from
`min_timestep` to 1, whatever the noise.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch import nn

from noise2text.core.config import option, require_at_least, require_fraction
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import LengthLoss, MseLoss, NllLoss, RoundingLoss
from noise2text.diffusion.noise_clipping import ClippedTimes, ExaggeratedNoise, QuadraticSchedule
from noise2text.generation.config import LengthPredictingGenerationConfig
from noise2text.models import LengthPredictingModel
from noise2text.models.encoder_decoder_config import TINY, EncoderDecoderConfig, build_denoiser
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.length_predictor import LengthPredictor
from noise2text.nn.spherical_embeddings import SphericalEmbedding
from noise2text.training.objective import DiffusionObjective

__all__ = [
    "PRESETS",
    "RECIPE",
    "ClippedObjective",
    "DiNoiSerConfig",
    "DiNoiSerModel",
    "DinoiserGenerationConfig",
    "build",
    "objective",
]


@dataclass(frozen=True)
class DinoiserGenerationConfig(LengthPredictingGenerationConfig):
    """Length prediction, deterministic steps, and what the network is told of them."""

    stop_early: int = option(0, "how many of the last steps are left out")
    noise_beam: int = option(1, "noises tried a length")
    eta: float = option(0.0, "share of fresh noise a step: 1 is ancestral, 0 is DDIM")
    min_timestep: float = option(
        0.99, "least time that the network is told, whatever the noise; 0 tells the truth"
    )

    @property
    def select_choices(self) -> tuple[str, ...]:
        return ("mbr", "score")  # the time at which texts are looked at may be below any that it learned

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction(self, "min_timestep")


@dataclass(frozen=True)
class DiNoiSerConfig(EncoderDecoderConfig):
    """The released scripts; the defaults are those of IWSLT14."""

    max_tokens: int = option(32_768, "padded tokens of the longer side in a batch")
    warmup: int = option(4_000, "steps over which the learning rate rises")
    embedding_dim: int = option(16, "d, the dimension of the diffusion")
    noise_clip_margin: float = option(0.0, "added to the noise-to-signal ratio that training is clipped at")
    noise_clip_every: int = option(100, "steps between two looks at the embeddings")
    length_loss_weight: float = option(0.1, "weight of the length loss")
    length_beam: int = option(5, "lengths tried a sentence, as the model's default")
    min_timestep: float = option(0.99, "least time told in generation, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 0, "noise_clip_margin", "length_loss_weight")
        require_at_least(self, 1, "noise_clip_every", "length_beam")
        require_fraction(self, "min_timestep")


_IWSLT14 = DiNoiSerConfig()
_WMT = dataclasses.replace(
    _IWSLT14, embedding_dim=64, ffn_dim=2048, heads=8, dropout=0.1, max_tokens=131_072, vocabulary=32_768
)

PRESETS: dict[str, DiNoiSerConfig] = {
    "iwslt14-de-en": _IWSLT14,
    "wmt14-en-de": dataclasses.replace(_WMT, noise_clip_margin=1.0),
    "wmt16-en-ro": dataclasses.replace(_WMT, dropout=0.05),
    "tiny": dataclasses.replace(
        _IWSLT14, **TINY | {"steps": 800, "validate_every": 400, "save_every": 400, "length_beam": 1}
    ),
}


class DiNoiSerModel(LengthPredictingModel):
    """A diffusion model that predicts lengths, and tells its network of more noise than there is."""

    def build_sampling_schedule(self, generation_config: Any) -> nn.Module:
        return ExaggeratedNoise(
            super().build_sampling_schedule(generation_config), generation_config.min_timestep
        )


class ClippedObjective(DiffusionObjective):
    """A diffusion objective whose times are clipped by where the embeddings are."""

    time_sampler: ClippedTimes

    def __init__(self, *parts: Any, noise_clip_every: int, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.noise_clip_every = noise_clip_every
        self.time_sampler.clip(self.denoiser.embedding.vectors)

    def update(self, step: int) -> None:
        """Look at the embeddings after every `noise_clip_every` steps."""
        if step % self.noise_clip_every == 0:
            self.time_sampler.clip(self.denoiser.embedding.vectors)


def build(config: DiNoiSerConfig, tokenizer: Tokenizer) -> DiNoiSerModel:
    """The untrained system."""
    return DiNoiSerModel(
        tokenizer,
        layout=SplitLayout(tokenizer.pad),
        denoiser=build_denoiser(
            config,
            SphericalEmbedding(len(tokenizer), config.embedding_dim),
            positions=config.max_target,
        ),
        schedule=QuadraticSchedule(config.diffusion_steps),
        lengths=LengthPredictor(config.model_dim, max_length=config.max_target, source=config.max_source),
        generation_config=DinoiserGenerationConfig(
            steps=config.generation_steps,
            noise_beam=config.noise_beam,
            length_beam=config.length_beam,
            min_timestep=config.min_timestep,
        ),
        max_source=config.max_source,
        max_target=config.max_target,
    )


def objective(config: DiNoiSerConfig, model: DiNoiSerModel) -> ClippedObjective:
    """What the system is trained on: the error of ẑ₀ at clipped noise, the rounding of z₀, and the length."""
    return ClippedObjective(
        model.denoiser,
        model.schedule,
        ClippedTimes(model.schedule, margin=config.noise_clip_margin).to(model.device),
        terms={
            "vlb": MseLoss(),
            "rounding": RoundingLoss(),
            "length": LengthLoss(model.lengths),
            "nll": NllLoss(),
        },
        weights={"vlb": 1.0, "rounding": 1.0, "length": config.length_loss_weight},
        self_conditioning=config.self_conditioning,
        noise_clip_every=config.noise_clip_every,
    )


RECIPE = Recipe(
    name="dinoiser",
    paper="DiNoiSer (Ye et al., 2023)",
    section="4",
    summary="Training noise clipped by the embeddings' distances, and a sampler that exaggerates the noise.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    resolve=keep_config,
    build=build,
    objective=objective,
)
