"""AR-Diffusion (Wu et al., 2023): the left of a sentence is denoised before its right.

    noise2text train ar-diffusion --train pairs.jsonl --valid pairs.jsonl --out runs/mine

Filled layout + encoder-decoder + Speeds(Sqrt): each position has its own time, and the network is told it;
vlb + rounding + prior. Generation goes down in few even steps of the sentence's time (skipping); MBR of many.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from noise2text.core.config import option, require_least
from noise2text.data.layouts.padded_target import Filled
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import Mse, Nll, Prior, Rounding
from noise2text.diffusion.schedules import Sqrt, ends
from noise2text.diffusion.time_samplers import Uniform
from noise2text.diffusion.token_speeds import Speeds
from noise2text.generation.config import DiffusionSettings
from noise2text.models import Diffusion
from noise2text.models.encoder_decoder_config import TINY, EncoderDecoderSettings, network
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.embeddings import Space
from noise2text.training.objective import DiffusionObjective

__all__ = ["PRESETS", "RECIPE", "ArDiffusionSettings", "build", "objective"]


@dataclass(frozen=True)
class ArDiffusionSettings(EncoderDecoderSettings):
    """The released scripts; the defaults are those of IWSLT14 German–English."""

    max_source: int = option(256, "longest source in tokens; what is longer is cut and counted")
    max_target: int = option(89, "longest target in tokens; its canvas has one place more, for the end")
    steps: int = option(135_000, "how many updates to train")
    tokens: int = option(384 * 90, "padded tokens of the longer side in a batch")
    accumulate: int = option(8, "micro-batches an update; each has `tokens` tokens")
    learning_rate: float = option(2e-3, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    weight_decay: float = option(0.0, "AdamW's decay of the weights")
    warmup: int = option(4_000, "steps over which the learning rate rises")
    clip: float = option(0.0, "largest norm of the gradient; 0 leaves it alone")
    ema: float = option(0.9999, "decay of the moving average of the weights, e.g. 0.999; 0 for none")

    embedding: int = option(64, "d, the dimension of the diffusion")
    self_conditioning: float = option(0.0, "share of the steps trained with a guess; 0 is none")
    anchor: float = option(2.0, "where the speeds' anchor lies, in lengths of the canvas; more is more even")
    noise_beam: int = option(50, "candidates a sentence, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 1.0, "anchor")


_IWSLT14 = ArDiffusionSettings()
_SUMMARIES = dataclasses.replace(
    _IWSLT14,
    vocabulary=30_522,
    lowercase=True,
    max_source=512,
    max_target=49,
    steps=80_000,
    tokens=384 * 512,
    learning_rate=8e-4,
    embedding=128,
    ffn=2048,
    heads=8,
)

PRESETS: dict[str, ArDiffusionSettings] = {
    "iwslt14-de-en": _IWSLT14,
    "xsum": _SUMMARIES,
    "cnn-dailymail": dataclasses.replace(_SUMMARIES, max_target=179, steps=100_000, tokens=400 * 512),
    "tiny": dataclasses.replace(
        _IWSLT14, **TINY | {"embedding": 8, "accumulate": 1, "steps": 800, "validate_every": 400}
    ),
}


def build(settings: ArDiffusionSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system."""
    canvas = settings.max_target + 1  # the target and its end
    return Diffusion(
        tokenizer,
        layout=Filled(tokenizer.pad, eos=tokenizer.eos, width=canvas),
        denoiser=network(
            settings, Space(len(tokenizer), settings.embedding, scale=1.0, bias=True), positions=canvas
        ),
        schedule=Speeds(Sqrt(settings.diffusion_steps), canvas, anchor=settings.anchor),
        how=DiffusionSettings(steps=settings.generation_steps, noise_beam=settings.noise_beam),
        max_source=settings.max_source,
        max_target=settings.max_target,
        written=(tokenizer.eos, tokenizer.pad),
    )


def objective(settings: ArDiffusionSettings, system: Diffusion) -> DiffusionObjective:
    """What the system is trained on: Diffusion-LM's terms, at a time of its own for each position."""
    blur, remains = ends(Sqrt(settings.diffusion_steps), settings.diffusion_steps)
    return DiffusionObjective(
        system.denoiser,
        system.schedule,
        Uniform(settings.diffusion_steps),
        terms={
            "vlb": Mse(),
            "rounding": Rounding(),
            "prior": Prior(remains=remains),
            "nll": Nll(),
        },
        weights={"vlb": 1.0, "rounding": 1.0, "prior": 1.0},
        self_conditioning=settings.self_conditioning,
        blur=blur,
    )


RECIPE = Recipe(
    name="ar-diffusion",
    paper="AR-Diffusion (Wu et al., 2023)",
    section="3",
    line="Positions move through time at different speeds, so that the left is written before the right.",
    presets=PRESETS,
    default="iwslt14-de-en",
    resolve=unchanged,
    build=build,
    objective=objective,
)
