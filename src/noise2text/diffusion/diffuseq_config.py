"""The section `diffusion` of the recipes with source and target on one canvas: noise, times and losses.

Difformer's is in `difformer_config.py`. Those of the other encoder-decoders are in their recipes.
"""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import option
from noise2text.core.errors import Problem
from noise2text.diffusion.config_groups import (
    DifformerPartsConfig,
    ScheduleConfig,
    SourceDropoutConfig,
    TimeSamplerConfig,
)
from noise2text.diffusion.diffuseq_losses import LOSS_TERMS, LOSS_WEIGHTINGS
from noise2text.diffusion.losses import AnchorLoss, LossTerm, NllLoss
from noise2text.diffusion.parameterization import PARAMETERIZATIONS, Parameterization
from noise2text.diffusion.position_sigmoid_schedule import PositionSigmoid
from noise2text.diffusion.schedules import SCHEDULES, AlphaBarSchedule, SignalFloor

__all__ = ["DiffuSeqDiffusionConfig", "JointDiffusionConfig"]

_POSITION_SIGMOID = "position-sigmoid"
_SEARCHABLE = {("z0", name) for name in SCHEDULES}


@dataclass(frozen=True)
class JointDiffusionConfig(DifformerPartsConfig, ScheduleConfig):
    """Noise and loss of models with source and target on one canvas."""

    def estimate_terms(self) -> list[LossTerm]:
        """The logged −log p(y | ẑ₀), and where it has a weight, Difformer's anchor loss without smoothing."""
        if not self.anchor_weight:
            return [NllLoss(weight=None)]
        return [
            AnchorLoss(weight=self.anchor_weight, smoothing=0.0),
            NllLoss(weight=None, always_computed=True),  # the anchor loss computes it anyway
        ]


@dataclass(frozen=True)
class DiffuSeqDiffusionConfig(SourceDropoutConfig, TimeSamplerConfig, JointDiffusionConfig):
    """Section 3, or the released code where the paper does not say, and Demirag's variants."""

    schedule: str = option(
        "sqrt",
        f"{', '.join(SCHEDULES)}, or position-sigmoid (the last token is noised first; always aligned)",
        choices=(*SCHEDULES, _POSITION_SIGMOID),
    )
    time_sampler: str = "loss-aware"
    loss_positions: str = option(
        "equation-2",
        "positions that the losses count: equation-2 (error on the target, rounding everywhere), algorithm-6 "
        "(error everywhere, rounding on the target), released (everything everywhere) or target",
        choices=LOSS_TERMS,
    )
    align_targets: bool = option(
        False, "start all targets at the same position, after the longest source; false as in the paper"
    )
    parameterization: str = option(
        "z0",
        f"what the network predicts: {', '.join(PARAMETERIZATIONS)} (Demirag, 2023, 2.1.4)",
        choices=PARAMETERIZATIONS,
    )
    loss_weighting: str = option(
        "output",
        "whose squared error the loss is: the output's, the noise's (noise) or the estimate's (z0)",
        choices=LOSS_WEIGHTINGS,
    )
    min_alpha_bar: float | None = option(
        None,
        "smallest ᾱ of the schedule; none is 0, or 0.01 for epsilon and score, which divide by its root",
        minimum=0,
        below=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_factor_every and (self.parameterization, self.schedule) not in _SEARCHABLE:
            raise Problem(
                "The noise factor is searched again for networks that predict z0 and schedules that are the "
                "same at all positions: set noise_factor_every to 0, or parameterization and schedule."
            )

    @property
    def signal_floor(self) -> float:
        """The smallest ᾱ of the schedule."""
        default = PARAMETERIZATIONS[self.parameterization].min_alpha_bar
        return default if self.min_alpha_bar is None else self.min_alpha_bar

    @property
    def has_aligned_targets(self) -> bool:
        """Whether all targets start at the same position."""
        return self.align_targets or self.schedule == _POSITION_SIGMOID

    def build_schedule(self, *, max_source: int, max_target: int) -> AlphaBarSchedule:
        """The noise schedule, with ᾱ at least `signal_floor`; the lengths are those of the data section."""
        if self.schedule == _POSITION_SIGMOID:
            schedule: AlphaBarSchedule = PositionSigmoid(
                self.num_timesteps, target_start=max_source + 2, positions=max_target + 1
            )
        else:
            schedule = SCHEDULES[self.schedule](self.num_timesteps)
        return SignalFloor(schedule, self.signal_floor) if self.signal_floor else schedule

    def build_parameterization(self, schedule: AlphaBarSchedule) -> Parameterization:
        """The parameterization of the network's output, for the noise of training."""
        return PARAMETERIZATIONS[self.parameterization](self.build_training_schedule(schedule))
