"""The variants of DiffuSeq of a thesis on machine translation: other outputs, another schedule, guidance.

    noise2text train diffuseq-epsilon --train pairs.jsonl --valid pairs.jsonl --out runs/mine

Everything is DiffuSeq's but one part, or several: what the network predicts (2.1.4: `parameterization`, `weigh`), in
which order the positions are noised (3.2.5: `position_schedule`), and whether it also learns to write without a source,
so that generation can be guided (2.1.6: `source_dropout`, `guidance_weight`). Each recipe is one of them; `--set`
combines them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noise2text.core.config import option, require_at_least, require_choice, require_fraction
from noise2text.core.errors import Problem
from noise2text.data.layouts.aligned_joint import AlignedJointLayout
from noise2text.data.layouts.joint import NUM_SPECIAL_TOKENS, JointLayout
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import uniform_weight
from noise2text.diffusion.parameterization import (
    PARAMETERIZATIONS,
    Parameterization,
    ResidualOutput,
    SignalFloor,
)
from noise2text.diffusion.position_sigmoid import MIN_VARIANCE, PositionSigmoid
from noise2text.diffusion.schedules import SCHEDULES, Schedule, z0_noise_and_final_alpha
from noise2text.generation.config import ClassifierFreeGenerationConfig, DiffusionGenerationConfig
from noise2text.models import ClassifierFreeModel, DiffusionModel
from noise2text.models.registry import Recipe, keep_config
from noise2text.nn.denoiser import NoiseLevel
from noise2text.recipes import diffuseq
from noise2text.training.objective import Objective
from noise2text.training.source_dropout import SourceDropout

__all__ = [
    "LOSS_WEIGHTINGS",
    "POSITION_SCHEDULES",
    "RECIPES",
    "PositionSchedule",
    "VariantConfig",
    "build",
    "objective",
]

Weighting = Callable[[NoiseLevel], Tensor]

LOSS_WEIGHTINGS: dict[str, Callable[[Parameterization], Weighting]] = {
    "output": lambda parameterization: parameterization.weight,
    "noise": lambda parameterization: lambda level: level.snr,
    "z0": lambda parameterization: uniform_weight,
}
"""Whose squared error the loss is, by the factor that makes it from ẑ₀'s."""


@dataclass(frozen=True)
class PositionSchedule:
    """Which positions are noised when: a layout, a schedule and the schedule's ends fit together."""

    layout: Callable[[VariantConfig, dict[str, int]], JointLayout]
    schedule: Callable[[VariantConfig], Schedule]
    z0_noise_and_final_alpha: Callable[[Schedule, int], tuple[float, float]]


POSITION_SCHEDULES: dict[str, PositionSchedule] = {
    "together": PositionSchedule(
        layout=lambda config, parts: diffuseq.find_layout(config)(**parts),
        schedule=lambda config: SCHEDULES[config.schedule](config.diffusion_steps),
        z0_noise_and_final_alpha=z0_noise_and_final_alpha,
    ),
    "staggered": PositionSchedule(
        layout=lambda config, parts: AlignedJointLayout(**parts, max_source=config.max_source),
        schedule=lambda config: PositionSigmoid(
            config.diffusion_steps, target_start=config.max_source + 2, positions=config.max_target + 1
        ),
        z0_noise_and_final_alpha=lambda schedule, steps: (
            math.sqrt(MIN_VARIANCE),
            float(schedule.alpha_bar(torch.ones(1, dtype=torch.float64)).max().sqrt()),
        ),
    ),
}


@dataclass(frozen=True)
class VariantConfig(diffuseq.DiffuSeqConfig):
    """DiffuSeq's, and the thesis's parts by name."""

    parameterization: str = option("z0", "what the network answers with: z0, epsilon, score or mean")
    loss_weighting: str = option(
        "output", "whose squared error the loss is: the output's, the noise's (noise) or the estimate's (z0)"
    )
    min_alpha_bar: float | None = option(
        None, "the least ᾱ: generation starts from its time; none is 0, or 0.01 for epsilon and score"
    )
    residual_output: bool = option(
        False, "add z to the network's answer, which for epsilon and score is mostly z"
    )
    position_schedule: str = option(
        "together", "all noised together, or staggered: one by one from the right, always aligned"
    )
    source_dropout: float = option(0.0, "share of the pairs that are trained on without their source")
    guidance_weight: float = option(
        0.0, "w of guidance, as the model's default; it needs unconditional above 0"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "parameterization", PARAMETERIZATIONS)
        require_choice(self, "loss_weighting", LOSS_WEIGHTINGS)
        require_choice(self, "position_schedule", POSITION_SCHEDULES)
        require_fraction(self, "source_dropout")
        require_at_least(self, -1, "guidance_weight")
        if not 0 <= self.signal_floor < 1 or (
            PARAMETERIZATIONS[self.parameterization].min_alpha_bar and not self.signal_floor
        ):
            raise Problem(
                f"The setting min_alpha_bar must be below 1, and above 0 for epsilon and score, which divide "
                f"by its root; it is {self.min_alpha_bar}."
            )
        if self.parameterization == "mean" and (self.signal_floor or self.position_schedule == "staggered"):
            raise Problem(
                "The setting parameterization=mean takes neither order=staggered nor least_signal: where the noise "
                "stands still for a step, the next mean is z itself and says nothing of z0."
            )
        if self.position_schedule == "staggered" and self.schedule != "sqrt":
            raise Problem("The setting schedule is not for order=staggered, which is a schedule of its own.")
        last = torch.tensor(1 - 1 / self.diffusion_steps, dtype=torch.float64)
        if self.parameterization == "mean" and not SCHEDULES[self.schedule](self.diffusion_steps).alpha_bar(
            last
        ):
            raise Problem(
                f"The setting parameterization=mean takes fewer diffusion_steps than {self.diffusion_steps:,}: before "
                f"the last of them there is no signal left."
            )
        if self.parameterization == "mean" and self.precision == "bfloat16":
            raise Problem(
                "The setting parameterization=mean takes no precision=bfloat16: z0 is a small part of the next mean, "
                "and reading it off makes what was rounded as large as z0."
            )
        if self.parameterization == "mean" and self.noise_factor != 1:
            raise Problem(
                "The setting parameterization=mean takes no factor: the next mean depends on generation's noise, "
                "which then is not that of training."
            )
        if self.residual_output and self.parameterization not in ("epsilon", "score"):
            raise Problem(
                f"The setting residual_output is for predict=epsilon and predict=score: {self.parameterization} is not mostly z."
            )
        if self.guidance_weight and not self.source_dropout:
            raise Problem(
                "The setting guidance_weight needs unconditional above 0: both ways have to be learned."
            )

    @property
    def signal_floor(self) -> float:
        """The least ᾱ that the schedule keeps."""
        return (
            PARAMETERIZATIONS[self.parameterization].min_alpha_bar
            if self.min_alpha_bar is None
            else self.min_alpha_bar
        )

    def build_parameterization(self, schedule: Schedule) -> Parameterization:
        """How the network's output is read."""
        plain = PARAMETERIZATIONS[self.parameterization](schedule, noise_factor=self.noise_factor)
        return ResidualOutput(plain, schedule) if self.residual_output else plain


def build(config: VariantConfig, tokenizer: Tokenizer) -> DiffusionModel:
    """The untrained system."""
    position_schedule = POSITION_SCHEDULES[config.position_schedule]
    marks = {"bos": tokenizer.bos, "sep": tokenizer.sep, "eos": tokenizer.eos}
    width = config.max_source + config.max_target + NUM_SPECIAL_TOKENS
    schedule = position_schedule.schedule(config)
    if config.signal_floor:
        schedule = SignalFloor(schedule, config.signal_floor)
    generation_config: dict[str, Any] = {
        "steps": config.generation_steps,
        "noise_beam": config.noise_beam,
        "clamp": config.clamp,
    }
    parts: dict[str, Any] = {
        "layout": position_schedule.layout(config, {"pad": tokenizer.pad, **marks, "width": width}),
        "denoiser": config.build_parameterization(schedule).wrap(diffuseq.build_denoiser(config, tokenizer)),
        "schedule": schedule,
        "max_source": config.max_source,
        "max_target": config.max_target,
        "writable_specials": (tokenizer.eos, tokenizer.pad),
    }
    if config.source_dropout:
        return ClassifierFreeModel(
            tokenizer,
            generation_config=ClassifierFreeGenerationConfig(
                **generation_config, guidance_weight=config.guidance_weight
            ),
            **parts,
        )
    return DiffusionModel(
        tokenizer, generation_config=DiffusionGenerationConfig(**generation_config), **parts
    )


def objective(config: VariantConfig, model: DiffusionModel) -> Objective:
    """DiffuSeq's, weighed, and for guidance on some pairs without their source."""
    parameterization = config.build_parameterization(model.schedule)
    plain = diffuseq.objective(
        config,
        model,
        weighting=LOSS_WEIGHTINGS[config.loss_weighting](parameterization),
        z0_noise_and_final_alpha=POSITION_SCHEDULES[config.position_schedule].z0_noise_and_final_alpha,
    )
    return SourceDropout(plain, model.layout, config.source_dropout) if config.source_dropout else plain


_FIELDS = [field.name for field in dataclasses.fields(diffuseq.DiffuSeqConfig)]


def _recipe(name: str, section: str, summary: str, tiny: dict[str, Any], **variant: Any) -> Recipe:
    """DiffuSeq's presets for the thesis's data and for dates, varied; `tiny` changes the latter further."""

    def varied(preset: str, changes: dict[str, Any]) -> VariantConfig:
        plain = {name: getattr(diffuseq.PRESETS[preset], name) for name in _FIELDS}
        return VariantConfig(**(plain | variant | changes))

    return Recipe(
        name=name,
        paper="Classifier-free Diffusion Models for Machine Translation (a thesis)",
        section=section,
        summary=summary,
        presets={"covost-de-en": varied("covost-de-en", {}), "tiny": varied("tiny", tiny)},
        default_preset="covost-de-en",
        resolve=keep_config,
        build=build,
        objective=objective,
    )


RECIPES = (
    _recipe(
        "diffuseq-epsilon",
        "2.1.4",
        "DiffuSeq that predicts the noise.",
        {"steps": 4_500, "min_alpha_bar": 0.03},
        parameterization="epsilon",
    ),
    _recipe("diffuseq-score", "2.1.4", "DiffuSeq by score matching.", {}, parameterization="score"),
    _recipe(
        "diffuseq-mean", "2.1.4", "DiffuSeq that predicts the next step's mean.", {}, parameterization="mean"
    ),
    _recipe(
        "diffuseq-guided",
        "2.1.6",
        "DiffuSeq with classifier-free guidance: trained with and without the source.",
        {},
        source_dropout=0.1,
        guidance_weight=0.5,
    ),
    _recipe(
        "diffuseq-staggered",
        "3.2.5",
        "DiffuSeq with a sigmoid schedule a position: the last token is noised first.",
        {"steps": 4_000, "source_dropout": 0.0},
        position_schedule="staggered",
        source_dropout=0.5,
    ),
)
