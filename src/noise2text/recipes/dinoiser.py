"""DiNoiSer (Ye et al., 2023): noise clipped from below in training, and exaggerated in generation.

    noise2text train dinoiser --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset iwslt14-de-en

Split layout + encoder-decoder with self-conditioning + embeddings on a sphere + Quadratic schedule with
Clipped times; vlb + rounding + 0.1 · length. Generation is DDIM with eta 0; the network is told times from
`told` to 1, whatever the noise.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch import nn

from noise2text.core.config import option, require_least, require_share
from noise2text.data.layouts.canvas import Split
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import LengthNll, Mse, Nll, Rounding
from noise2text.diffusion.noise_clipping import Clipped, FixedClock, Quadratic
from noise2text.generation.config import LengthSettings
from noise2text.models import LengthDiffusion
from noise2text.models.encoder_decoder_config import TINY, EncoderDecoderSettings, network
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.length_predictor import Lengths
from noise2text.nn.spherical_embeddings import Sphere
from noise2text.training.objective import DiffusionObjective

__all__ = [
    "PRESETS",
    "RECIPE",
    "ClippedObjective",
    "Dinoiser",
    "DinoiserSettings",
    "ToldSettings",
    "build",
    "objective",
]


@dataclass(frozen=True)
class ToldSettings(LengthSettings):
    """Length prediction, deterministic steps, and what the network is told of them."""

    stop_early: int = option(0, "how many of the last steps are left out")
    noise_beam: int = option(1, "noises tried a length")
    eta: float = option(0.0, "share of fresh noise a step: 1 is ancestral, 0 is DDIM")
    told: float = option(0.99, "least time that the network is told, whatever the noise; 0 tells the truth")

    @property
    def selections(self) -> tuple[str, ...]:
        return ("mbr", "score")  # the time at which texts are looked at may be below any that it learned

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self, "told")


@dataclass(frozen=True)
class DinoiserSettings(EncoderDecoderSettings):
    """The released scripts; the defaults are those of IWSLT14."""

    tokens: int = option(32_768, "padded tokens of the longer side in a batch")
    warmup: int = option(4_000, "steps over which the learning rate rises")
    embedding: int = option(16, "d, the dimension of the diffusion")
    clip_margin: float = option(0.0, "added to the noise-to-signal ratio that training is clipped at")
    clip_every: int = option(100, "steps between two looks at the embeddings")
    length_factor: float = option(0.1, "weight of the length loss")
    length_beam: int = option(5, "lengths tried a sentence, as the model's default")
    told: float = option(0.99, "least time told in generation, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 0, "clip_margin", "length_factor")
        require_least(self, 1, "clip_every", "length_beam")
        require_share(self, "told")


_IWSLT14 = DinoiserSettings()
_WMT = dataclasses.replace(
    _IWSLT14, embedding=64, ffn=2048, heads=8, dropout=0.1, tokens=131_072, vocabulary=32_768
)

PRESETS: dict[str, DinoiserSettings] = {
    "iwslt14-de-en": _IWSLT14,
    "wmt14-en-de": dataclasses.replace(_WMT, clip_margin=1.0),
    "wmt16-en-ro": dataclasses.replace(_WMT, dropout=0.05),
    "tiny": dataclasses.replace(
        _IWSLT14, **TINY | {"steps": 800, "validate_every": 400, "save_every": 400, "length_beam": 1}
    ),
}


class Dinoiser(LengthDiffusion):
    """A diffusion model that predicts lengths, and tells its network of more noise than there is."""

    def down(self, how: Any) -> nn.Module:
        return FixedClock(super().down(how), how.told)


class ClippedObjective(DiffusionObjective):
    """A diffusion objective whose times are clipped by where the embeddings are."""

    times: Clipped

    def __init__(self, *parts: Any, clip_every: int, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.clip_every = clip_every
        self.times.clip(self.denoiser.space.embeddings)

    def settle(self, step: int) -> None:
        """Look at the embeddings after every `clip_every` steps."""
        if step % self.clip_every == 0:
            self.times.clip(self.denoiser.space.embeddings)


def build(settings: DinoiserSettings, tokenizer: Tokenizer) -> Dinoiser:
    """The untrained system."""
    return Dinoiser(
        tokenizer,
        layout=Split(tokenizer.pad),
        denoiser=network(settings, Sphere(len(tokenizer), settings.embedding), positions=settings.max_target),
        schedule=Quadratic(settings.diffusion_steps),
        lengths=Lengths(settings.width, longest=settings.max_target, source=settings.max_source),
        how=ToldSettings(
            steps=settings.generation_steps,
            noise_beam=settings.noise_beam,
            length_beam=settings.length_beam,
            told=settings.told,
        ),
        max_source=settings.max_source,
        max_target=settings.max_target,
    )


def objective(settings: DinoiserSettings, system: Dinoiser) -> ClippedObjective:
    """What the system is trained on: the error of ẑ₀ at clipped noise, the rounding of z₀, and the length."""
    return ClippedObjective(
        system.denoiser,
        system.schedule,
        Clipped(system.schedule, margin=settings.clip_margin).to(system.device),
        terms={"vlb": Mse(), "rounding": Rounding(), "length": LengthNll(system.lengths), "nll": Nll()},
        weights={"vlb": 1.0, "rounding": 1.0, "length": settings.length_factor},
        self_conditioning=settings.self_conditioning,
        clip_every=settings.clip_every,
    )


RECIPE = Recipe(
    name="dinoiser",
    paper="DiNoiSer (Ye et al., 2023)",
    section="4",
    line="Training noise clipped by the embeddings' distances, and a sampler that exaggerates the noise.",
    presets=PRESETS,
    default="iwslt14-de-en",
    resolve=unchanged,
    build=build,
    objective=objective,
)
