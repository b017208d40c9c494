"""SeqDiffuSeq (Yuan et al., 2022): encoder-decoder, self-conditioning, a schedule that adapts to the losses.

    noise2text train seqdiffuseq --train pairs.jsonl --valid pairs.jsonl --out runs/mine --preset qqp

Filled layout + encoder-decoder with self-conditioning + Adaptive(Sqrt); vlb + rounding + prior (eq. 6);
ancestral sampling, at some steps by the prior. The end of the text and what follows it are written on the
canvas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from noise2text.core.config import option, require_heads, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.data.layouts.padded_target import Filled
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.adaptive_schedule import Adaptive
from noise2text.diffusion.losses import Mse, Prior, Rounding, Tally
from noise2text.diffusion.schedules import Sqrt, ends
from noise2text.diffusion.time_samplers import Uniform
from noise2text.generation.config import PriorSettings
from noise2text.models import Diffusion
from noise2text.models.encoder_decoder_config import network
from noise2text.models.init_from_teacher import StudentSettings, start_from_teacher
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.embeddings import Space
from noise2text.training.objective import DiffusionObjective, Draws

__all__ = ["PRESETS", "RECIPE", "AdaptiveObjective", "SeqDiffuSeqSettings", "build", "objective"]


@dataclass(frozen=True)
class SeqDiffuSeqSettings(StudentSettings):
    """Section 5.3, appendix D and table 6; the defaults are its translation column."""

    max_target: int = option(63, "longest target in tokens; its canvas has one place more, for the end")
    steps: int = option(1_000_000, "how many updates to train")
    learning_rate: float = option(1e-4, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    weight_decay: float = option(0.0, "AdamW's decay of the weights")
    decay: str = option("linear", "how the learning rate falls: inverse-sqrt, linear, cosine or constant")
    clip: float = option(0.0, "largest norm of the gradient; 0 leaves it alone")
    ema: float = option(0.9999, "decay of the moving average of the weights, e.g. 0.999; 0 for none")
    validate_every: int = option(10_000, "steps between two validations")

    width: int = option(512, "hidden dimension")
    embedding: int = option(128, "embedding dimension, the dimension of the diffusion")
    ffn: int = option(2048, "FFN dimension")
    heads: int = option(8, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that denoise the target")
    dropout: float = option(0.3, "dropout")

    diffusion_steps: int = option(2000, "T, the resolution of time in training")
    self_conditioning: float = option(0.5, "share of the steps trained with a guess; 0 is none")
    refit_every: int = option(20_000, "steps between two refits of the schedule; 0 keeps it at sqrt")
    refit_first: int = option(20_000, "the first step at which it may be refitted")
    refit_stride: int = option(20, "K, how many diffusion steps share a bin of losses")
    refit_least: int = option(100, "losses that each bin of a position needs before it is refitted")

    generation_steps: int = option(2000, "the steps of generation, as the model's default")
    noise_beam: int = option(1, "candidates a sentence, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_heads(self)
        require_share(self, "dropout", "self_conditioning")
        require_least(self, 0, "refit_every", "refit_first")
        require_least(self, 1, "embedding", "ffn", "encoder_layers", "decoder_layers", "generation_steps")
        require_least(self, 1, "noise_beam", "refit_stride", "refit_least")
        if self.diffusion_steps % self.refit_stride or self.diffusion_steps < 2 * self.refit_stride:
            raise Problem(
                f"The setting diffusion_steps must be a multiple of refit_stride and at least twice it, "
                f"not {self.diffusion_steps} of {self.refit_stride}."
            )
        if self.average > 1 and self.refit_every:
            raise Problem(
                f"The setting average must be 1, not {self.average}, where the schedule is refitted: weights "
                f"before and after a refit belong to different schedules; use ema instead."
            )


_IWSLT14 = SeqDiffuSeqSettings(tokens=128 * 64)
_OTHERS = dataclasses.replace(_IWSLT14, width=768, heads=12, ffn=3072, dropout=0.1, vocabulary=32_768)

PRESETS: dict[str, SeqDiffuSeqSettings] = {
    "iwslt14-de-en": _IWSLT14,
    "wmt14-en-de": dataclasses.replace(_IWSLT14, tokens=1024 * 64, vocabulary=32_768),
    "qqp": _OTHERS,
    "wiki-auto": _OTHERS,
    "qt": _OTHERS,
    "ccd": _OTHERS,
    "tiny": dataclasses.replace(
        _IWSLT14,
        tokenizer="characters",
        max_source=48,
        max_target=15,
        width=128,
        embedding=8,
        ffn=512,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        steps=1_000,
        tokens=2_048,
        learning_rate=2e-3,
        warmup=200,
        decay="cosine",
        clip=1.0,
        ema=0.0,
        refit_every=400,
        refit_first=400,
        refit_stride=100,
        refit_least=250,
        generation_steps=50,
        log_every=50,
        validate_every=500,
        save_every=500,
        validation_sentences=100,
    ),
}


def build(settings: SeqDiffuSeqSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system."""
    canvas = settings.max_target + 1  # the target and its end
    return Diffusion(
        tokenizer,
        layout=Filled(tokenizer.pad, eos=tokenizer.eos, width=canvas),
        denoiser=network(
            settings, Space(len(tokenizer), settings.embedding, scale=1.0, bias=True), positions=canvas
        ),
        schedule=Adaptive(
            Sqrt(settings.diffusion_steps),
            canvas,
            stride=settings.refit_stride,
            least=settings.refit_least,
        ),
        how=PriorSettings(steps=settings.generation_steps, noise_beam=settings.noise_beam),
        max_source=settings.max_source,
        max_target=settings.max_target,
        written=(tokenizer.eos, tokenizer.pad),
    )


class AdaptiveObjective(DiffusionObjective):
    """A diffusion objective whose schedule follows the term `difficulty`, refitted at set steps."""

    schedule: Adaptive

    def __init__(self, *parts: Any, refit_every: int, refit_first: int, **more: Any) -> None:
        super().__init__(*parts, always=["difficulty"], **more)
        self.refit_every, self.refit_first = refit_every, refit_first

    def seen(self, draws: Draws, tallies: Mapping[str, Tally]) -> tuple[Tensor, Tensor, Tensor]:
        difficulty = tallies["difficulty"]
        return draws.t, difficulty.value.detach(), difficulty.mask

    def observe(self, *seen: Tensor) -> None:
        self.schedule.observe(*seen)

    def settle(self, step: int) -> None:
        """Refit after every `refit_every` steps; losses of the periods before the first refit are dropped.

        It comes a step late, so that a model validated or saved at a round step has trained on its schedule.
        """
        done = step - 1
        if not self.refit_every or done % self.refit_every:
            return
        if done < self.refit_first:
            self.schedule.forget()
        else:
            self.schedule.refit()


def objective(settings: SeqDiffuSeqSettings, system: Diffusion) -> AdaptiveObjective:
    """What the system is trained on: eq. 6; the difficulty of what is not padding moves the schedule only."""
    assert isinstance(system.layout, Filled)
    blur, remains = ends(Sqrt(settings.diffusion_steps), settings.diffusion_steps)
    return AdaptiveObjective(
        system.denoiser,
        system.schedule,
        Uniform(settings.diffusion_steps),
        terms={
            "vlb": Mse(),
            "rounding": Rounding(),
            "prior": Prior(remains=remains),
            "difficulty": Mse(over=system.layout.spoken),
        },
        weights={"vlb": 1.0, "rounding": 1.0, "prior": 1.0},
        self_conditioning=settings.self_conditioning,
        blur=blur,
        refit_every=settings.refit_every,
        refit_first=settings.refit_first,
    )


RECIPE = Recipe(
    name="seqdiffuseq",
    paper="SeqDiffuSeq (Yuan et al., 2022)",
    section="4",
    line="Encoder-decoder diffusion with a noise schedule that adapts to the losses of each position.",
    presets=PRESETS,
    default="iwslt14-de-en",
    resolve=unchanged,
    build=build,
    objective=objective,
    start=start_from_teacher,
)
