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

from noise2text.core.config import option, require_at_least, require_divisible_heads, require_fraction
from noise2text.core.errors import Problem
from noise2text.data.layouts.padded_target import PaddedTargetLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.losses import MseLoss, PriorLoss, RoundingLoss, TokenLoss
from noise2text.diffusion.schedules import SqrtSchedule, z0_noise_and_final_alpha
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.generation.config import PriorSamplingGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.models.encoder_decoder_config import build_denoiser
from noise2text.models.init_from_teacher import StudentConfig, initialize_from_teacher
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.training.objective import DiffusionObjective, Draws

__all__ = ["PRESETS", "RECIPE", "AdaptiveObjective", "SeqDiffuSeqConfig", "build", "objective"]


@dataclass(frozen=True)
class SeqDiffuSeqConfig(StudentConfig):
    """Section 5.3, appendix D and table 6; the defaults are its translation column."""

    max_target: int = option(63, "longest target in tokens; its canvas has one place more, for the end")
    steps: int = option(1_000_000, "how many updates to train")
    lr: float = option(1e-4, "the peak of the learning rate")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's β")
    weight_decay: float = option(0.0, "AdamW's decay of the weights")
    lr_schedule: str = option(
        "linear", "how the learning rate falls: inverse-sqrt, linear, cosine or constant"
    )
    clip_norm: float = option(0.0, "largest norm of the gradient; 0 leaves it alone")
    ema_decay: float = option(0.9999, "decay of the moving average of the weights, e.g. 0.999; 0 for none")
    validate_every: int = option(10_000, "steps between two validations")

    model_dim: int = option(512, "hidden dimension")
    embedding_dim: int = option(128, "embedding dimension, the dimension of the diffusion")
    ffn_dim: int = option(2048, "FFN dimension")
    heads: int = option(8, "attention heads")
    encoder_layers: int = option(6, "layers that read the source")
    decoder_layers: int = option(6, "layers that denoise the target")
    dropout: float = option(0.3, "dropout")

    diffusion_steps: int = option(2000, "T, the resolution of time in training")
    self_conditioning: float = option(0.5, "share of the steps trained with a guess; 0 is none")
    refit_every: int = option(20_000, "steps between two refits of the schedule; 0 keeps it at sqrt")
    refit_start: int = option(20_000, "the first step at which it may be refitted")
    refit_bin_size: int = option(20, "K, how many diffusion steps share a bin of losses")
    refit_min_count: int = option(100, "losses that each bin of a position needs before it is refitted")

    generation_steps: int = option(2000, "the steps of generation, as the model's default")
    noise_beam: int = option(1, "candidates a sentence, as the model's default")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_divisible_heads(self)
        require_fraction(self, "dropout", "self_conditioning")
        require_at_least(self, 0, "refit_every", "refit_start")
        require_at_least(
            self, 1, "embedding_dim", "ffn_dim", "encoder_layers", "decoder_layers", "generation_steps"
        )
        require_at_least(self, 1, "noise_beam", "refit_bin_size", "refit_min_count")
        if self.diffusion_steps % self.refit_bin_size or self.diffusion_steps < 2 * self.refit_bin_size:
            raise Problem(
                f"The setting diffusion_steps must be a multiple of refit_stride and at least twice it, "
                f"not {self.diffusion_steps} of {self.refit_bin_size}."
            )
        if self.average_best > 1 and self.refit_every:
            raise Problem(
                f"The setting average_best must be 1, not {self.average_best}, where the schedule is refitted: weights "
                f"before and after a refit belong to different schedules; use ema instead."
            )


_IWSLT14 = SeqDiffuSeqConfig(max_tokens=128 * 64)
_OTHERS = dataclasses.replace(_IWSLT14, model_dim=768, heads=12, ffn_dim=3072, dropout=0.1, vocabulary=32_768)

PRESETS: dict[str, SeqDiffuSeqConfig] = {
    "iwslt14-de-en": _IWSLT14,
    "wmt14-en-de": dataclasses.replace(_IWSLT14, max_tokens=1024 * 64, vocabulary=32_768),
    "qqp": _OTHERS,
    "wiki-auto": _OTHERS,
    "qt": _OTHERS,
    "ccd": _OTHERS,
    "tiny": dataclasses.replace(
        _IWSLT14,
        tokenizer="characters",
        max_source=48,
        max_target=15,
        model_dim=128,
        embedding_dim=8,
        ffn_dim=512,
        heads=4,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        steps=1_000,
        max_tokens=2_048,
        lr=2e-3,
        warmup=200,
        lr_schedule="cosine",
        clip_norm=1.0,
        ema_decay=0.0,
        refit_every=400,
        refit_start=400,
        refit_bin_size=100,
        refit_min_count=250,
        generation_steps=50,
        log_every=50,
        validate_every=500,
        save_every=500,
        validation_sentences=100,
    ),
}


def build(config: SeqDiffuSeqConfig, tokenizer: Tokenizer) -> DiffusionModel:
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
        schedule=AdaptiveSchedule(
            SqrtSchedule(config.diffusion_steps),
            canvas,
            bin_size=config.refit_bin_size,
            min_count=config.refit_min_count,
        ),
        generation_config=PriorSamplingGenerationConfig(
            steps=config.generation_steps, noise_beam=config.noise_beam
        ),
        max_source=config.max_source,
        max_target=config.max_target,
        writable_specials=(tokenizer.eos, tokenizer.pad),
    )


class AdaptiveObjective(DiffusionObjective):
    """A diffusion objective whose schedule follows the term `difficulty`, refitted at set steps."""

    schedule: AdaptiveSchedule

    def __init__(self, *parts: Any, refit_every: int, refit_start: int, **more: Any) -> None:
        super().__init__(*parts, always_computed=["difficulty"], **more)
        self.refit_every, self.refit_start = refit_every, refit_start

    def observed(self, draws: Draws, token_losses: Mapping[str, TokenLoss]) -> tuple[Tensor, Tensor, Tensor]:
        difficulty = token_losses["difficulty"]
        return draws.t, difficulty.values.detach(), difficulty.mask

    def observe(self, *observed: Tensor) -> None:
        self.schedule.observe(*observed)

    def update(self, step: int) -> None:
        """Refit after every `refit_every` steps; losses of the periods before the first refit are dropped.

        It comes a step late, so that a model validated or saved at a round step has trained on its schedule.
        """
        done = step - 1
        if not self.refit_every or done % self.refit_every:
            return
        if done < self.refit_start:
            self.schedule.reset()
        else:
            self.schedule.refit()


def objective(config: SeqDiffuSeqConfig, model: DiffusionModel) -> AdaptiveObjective:
    """What the system is trained on: eq. 6; the difficulty of what is not padding moves the schedule only."""
    assert isinstance(model.layout, PaddedTargetLayout)
    z0_noise, final_alpha = z0_noise_and_final_alpha(
        SqrtSchedule(config.diffusion_steps), config.diffusion_steps
    )
    return AdaptiveObjective(
        model.denoiser,
        model.schedule,
        UniformTimes(config.diffusion_steps),
        terms={
            "vlb": MseLoss(),
            "rounding": RoundingLoss(),
            "prior": PriorLoss(final_alpha=final_alpha),
            "difficulty": MseLoss(positions=model.layout.non_padding_mask),
        },
        weights={"vlb": 1.0, "rounding": 1.0, "prior": 1.0},
        self_conditioning=config.self_conditioning,
        z0_noise=z0_noise,
        refit_every=config.refit_every,
        refit_start=config.refit_start,
    )


RECIPE = Recipe(
    name="seqdiffuseq",
    paper="SeqDiffuSeq (Yuan et al., 2022)",
    section="4",
    summary="Encoder-decoder diffusion with a noise schedule that adapts to the losses of each position.",
    presets=PRESETS,
    default_preset="iwslt14-de-en",
    resolve=keep_config,
    build=build,
    objective=objective,
    initialize=initialize_from_teacher,
)
