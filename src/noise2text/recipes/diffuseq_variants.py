"""The variants of DiffuSeq of a thesis on machine translation: other outputs, another schedule, guidance.

    noise2text train diffuseq-epsilon --train pairs.jsonl --valid pairs.jsonl --out runs/mine

Everything is DiffuSeq's but one part, or several: what the network predicts (2.1.4: `predict`, `weigh`), in
which order the positions are noised (3.2.5: `order`), and whether it also learns to write without a source,
so that generation can be guided (2.1.6: `unconditional`, `guidance`). Each recipe is one of them; `--set`
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

from noise2text.core.config import option, require_choice, require_least, require_share
from noise2text.core.errors import Problem
from noise2text.data.layouts.joint import MARKS, Joint
from noise2text.data.layouts.joint_aligned import Fixed
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import unweighed
from noise2text.diffusion.parameterization import HEADS, Floored, Head, Skipped
from noise2text.diffusion.position_sigmoid import CUT_OFF, Staggered
from noise2text.diffusion.schedules import SCHEDULES, Schedule, ends
from noise2text.generation.config import DiffusionSettings, GuidanceSettings
from noise2text.models import Diffusion, GuidedDiffusion
from noise2text.models.registry import Recipe, unchanged
from noise2text.nn.denoiser import Level
from noise2text.recipes import diffuseq
from noise2text.training.objective import Objective
from noise2text.training.source_dropout import Dropping

__all__ = ["ORDERS", "RECIPES", "WEIGHTS", "Order", "VariantSettings", "build", "objective"]

Weigh = Callable[[Level], Tensor]

WEIGHTS: dict[str, Callable[[Head], Weigh]] = {
    "output": lambda head: head.weight,
    "noise": lambda head: lambda level: level.snr,
    "z0": lambda head: unweighed,
}
"""Whose squared error the loss is, by the factor that makes it from ẑ₀'s."""


@dataclass(frozen=True)
class Order:
    """Which positions are noised when: a layout, a schedule and the schedule's ends fit together."""

    layout: Callable[[VariantSettings, dict[str, int]], Joint]
    schedule: Callable[[VariantSettings], Schedule]
    ends: Callable[[Schedule, int], tuple[float, float]]


ORDERS: dict[str, Order] = {
    "together": Order(
        layout=lambda settings, parts: diffuseq.layout_of(settings)(**parts),
        schedule=lambda settings: SCHEDULES[settings.schedule](settings.diffusion_steps),
        ends=ends,
    ),
    "staggered": Order(
        layout=lambda settings, parts: Fixed(**parts, room=settings.max_source),
        schedule=lambda settings: Staggered(
            settings.diffusion_steps, first=settings.max_source + 2, positions=settings.max_target + 1
        ),
        ends=lambda schedule, steps: (
            math.sqrt(CUT_OFF),
            float(schedule.alpha_bar(torch.ones(1, dtype=torch.float64)).max().sqrt()),
        ),
    ),
}


@dataclass(frozen=True)
class VariantSettings(diffuseq.DiffuseqSettings):
    """DiffuSeq's, and the thesis's parts by name."""

    predict: str = option("z0", "what the network answers with: z0, epsilon, score or mean")
    weigh: str = option(
        "output", "whose squared error the loss is: the output's, the noise's (noise) or the estimate's (z0)"
    )
    least_signal: float | None = option(
        None, "the least ᾱ: generation starts from its time; none is 0, or 0.01 for epsilon and score"
    )
    skip: bool = option(False, "add z to the network's answer, which for epsilon and score is mostly z")
    order: str = option(
        "together", "all noised together, or staggered: one by one from the right, always aligned"
    )
    unconditional: float = option(0.0, "share of the pairs that are trained on without their source")
    guidance: float = option(0.0, "w of guidance, as the model's default; it needs unconditional above 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "predict", HEADS)
        require_choice(self, "weigh", WEIGHTS)
        require_choice(self, "order", ORDERS)
        require_share(self, "unconditional")
        require_least(self, -1, "guidance")
        if not 0 <= self.least < 1 or (HEADS[self.predict].least and not self.least):
            raise Problem(
                f"The setting least_signal must be below 1, and above 0 for epsilon and score, which divide "
                f"by its root; it is {self.least_signal}."
            )
        if self.predict == "mean" and (self.least or self.order == "staggered"):
            raise Problem(
                "The setting predict=mean takes neither order=staggered nor least_signal: where the noise "
                "stands still for a step, the next mean is z itself and says nothing of z0."
            )
        if self.order == "staggered" and self.schedule != "sqrt":
            raise Problem("The setting schedule is not for order=staggered, which is a schedule of its own.")
        last = torch.tensor(1 - 1 / self.diffusion_steps, dtype=torch.float64)
        if self.predict == "mean" and not SCHEDULES[self.schedule](self.diffusion_steps).alpha_bar(last):
            raise Problem(
                f"The setting predict=mean takes fewer diffusion_steps than {self.diffusion_steps:,}: before "
                f"the last of them there is no signal left."
            )
        if self.predict == "mean" and self.precision == "bfloat16":
            raise Problem(
                "The setting predict=mean takes no precision=bfloat16: z0 is a small part of the next mean, "
                "and reading it off makes what was rounded as large as z0."
            )
        if self.predict == "mean" and self.factor != 1:
            raise Problem(
                "The setting predict=mean takes no factor: the next mean depends on generation's noise, "
                "which then is not that of training."
            )
        if self.skip and self.predict not in ("epsilon", "score"):
            raise Problem(
                f"The setting skip is for predict=epsilon and predict=score: {self.predict} is not mostly z."
            )
        if self.guidance and not self.unconditional:
            raise Problem("The setting guidance needs unconditional above 0: both ways have to be learned.")

    @property
    def least(self) -> float:
        """The least ᾱ that the schedule keeps."""
        return HEADS[self.predict].least if self.least_signal is None else self.least_signal

    def head(self, schedule: Schedule) -> Head:
        """How the network's output is read."""
        plain = HEADS[self.predict](schedule, factor=self.factor)
        return Skipped(plain, schedule) if self.skip else plain


def build(settings: VariantSettings, tokenizer: Tokenizer) -> Diffusion:
    """The untrained system."""
    order = ORDERS[settings.order]
    marks = {"begin": tokenizer.bos, "separator": tokenizer.sep, "end": tokenizer.eos}
    width = settings.max_source + settings.max_target + MARKS
    schedule = order.schedule(settings)
    if settings.least:
        schedule = Floored(schedule, settings.least)
    how: dict[str, Any] = {
        "steps": settings.generation_steps,
        "noise_beam": settings.noise_beam,
        "clamp": settings.clamp,
    }
    parts: dict[str, Any] = {
        "layout": order.layout(settings, {"pad": tokenizer.pad, **marks, "width": width}),
        "denoiser": settings.head(schedule).around(diffuseq.network(settings, tokenizer)),
        "schedule": schedule,
        "max_source": settings.max_source,
        "max_target": settings.max_target,
        "written": (tokenizer.eos, tokenizer.pad),
    }
    if settings.unconditional:
        return GuidedDiffusion(tokenizer, how=GuidanceSettings(**how, guidance=settings.guidance), **parts)
    return Diffusion(tokenizer, how=DiffusionSettings(**how), **parts)


def objective(settings: VariantSettings, system: Diffusion) -> Objective:
    """DiffuSeq's, weighed, and for guidance on some pairs without their source."""
    head = settings.head(system.schedule)
    plain = diffuseq.objective(
        settings, system, weigh=WEIGHTS[settings.weigh](head), ends=ORDERS[settings.order].ends
    )
    return Dropping(plain, system.layout, settings.unconditional) if settings.unconditional else plain


_FIELDS = [field.name for field in dataclasses.fields(diffuseq.DiffuseqSettings)]


def _recipe(name: str, section: str, line: str, tiny: dict[str, Any], **variant: Any) -> Recipe:
    """DiffuSeq's presets for the thesis's data and for dates, varied; `tiny` changes the latter further."""

    def varied(preset: str, changes: dict[str, Any]) -> VariantSettings:
        plain = {name: getattr(diffuseq.PRESETS[preset], name) for name in _FIELDS}
        return VariantSettings(**(plain | variant | changes))

    return Recipe(
        name=name,
        paper="Classifier-free Diffusion Models for Machine Translation (a thesis)",
        section=section,
        line=line,
        presets={"covost-de-en": varied("covost-de-en", {}), "tiny": varied("tiny", tiny)},
        default="covost-de-en",
        resolve=unchanged,
        build=build,
        objective=objective,
    )


RECIPES = (
    _recipe(
        "diffuseq-epsilon",
        "2.1.4",
        "DiffuSeq that predicts the noise.",
        {"steps": 4_500, "least_signal": 0.03},
        predict="epsilon",
    ),
    _recipe("diffuseq-score", "2.1.4", "DiffuSeq by score matching.", {}, predict="score"),
    _recipe("diffuseq-mean", "2.1.4", "DiffuSeq that predicts the next step's mean.", {}, predict="mean"),
    _recipe(
        "diffuseq-guided",
        "2.1.6",
        "DiffuSeq with classifier-free guidance: trained with and without the source.",
        {},
        unconditional=0.1,
        guidance=0.5,
    ),
    _recipe(
        "diffuseq-staggered",
        "3.2.5",
        "DiffuSeq with a sigmoid schedule a position: the last token is noised first.",
        {"steps": 4_000, "unconditional": 0.0},
        order="staggered",
        unconditional=0.5,
    ),
)
