"""The section `diffusion` of Difformer and of recipes that extend it, such as flow: noise, times and loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from noise2text.core.config import (
    option,
    require_values,
)
from noise2text.core.errors import Problem
from noise2text.diffusion.config_groups import (
    AdaptiveScheduleConfig,
    NoiseFactorSearchConfig,
    ScheduleConfig,
    SelfConditioningConfig,
    SourceDropoutConfig,
    TimeSamplerConfig,
)
from noise2text.diffusion.losses import AnchorLoss, LengthLoss, LossTerm, MseLoss, NllLoss, RoundingLoss
from noise2text.diffusion.schedules import (
    SCHEDULES,
    AlphaBarSchedule,
    Rescaled,
    Schedule,
    VariancePreserving,
    rescale_preserving,
)
from noise2text.nn.length_predictor import LengthPredictor

__all__ = ["DifformerDiffusionConfig"]


@dataclass(frozen=True)
class DifformerDiffusionConfig(
    NoiseFactorSearchConfig,
    SourceDropoutConfig,
    SelfConditioningConfig,
    TimeSamplerConfig,
    ScheduleConfig,
    AdaptiveScheduleConfig,
):
    """The schedule, its rescaling, and the loss of eq. 2."""

    noise_factor: float | None = option(
        None, "F, factor of the noise in training; none finds it by max_dgs; 1 is no rescaling", above=0
    )
    variance_preserving: bool = option(
        False, "also scale the signal down, so that α² + σ² = 1 (Difformer, eq. 8)"
    )
    self_condition_noise: float = option(
        0.0,
        "standard deviation of the noise on the estimate of self-conditioning in training; 0 is none",
        minimum=0,
    )
    boundary_confidence: float = option(
        0.0,
        "r of boundary-conditional noise, which begins where a token can be lost; 0 is ordinary noise",
        minimum=0,
        maximum=1,
    )
    student_steps: int = option(
        0,
        "N, steps of a student that does in one step what the difformer in from_folder does in two; 0 is "
        "ordinary training",
        minimum=0,
    )
    vlb_weight: float = option(1.0, "weight of the squared error of z₀ (L_VLB)", minimum=0)
    anchor_weight: float = option(1.0, "weight of the anchor loss, −log p(y | ẑ₀)", minimum=0)
    rounding_weight: float = option(0.0, "weight of the rounding loss, −log p(y | z₀)", minimum=0)
    length_loss_weight: float = option(0.1, "weight of the length loss", minimum=0)
    label_smoothing: float = option(0.1, "label smoothing of the anchor loss", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.vlb_weight or self.anchor_weight):
            raise Problem(
                "One of the settings vlb_weight and anchor_weight must be above 0: the rounding loss alone "
                "does not train the denoiser."
            )
        if self.student_steps:
            require_values(
                self,
                "A student learns its teacher's steps at their times",
                time_sampler="uniform",
                boundary_confidence=0,
            )
        if self.student_steps or self.boundary_confidence:
            require_values(
                self,
                "Students and boundaries need noise that stays the same",
                refit_every=0,
                noise_factor_every=0,
            )
        if 2 * self.student_steps > self.num_timesteps:
            raise Problem(
                f"The setting student_steps must be at most half of num_timesteps, not {self.student_steps}."
            )

    def build_schedule(self, *, positions: int) -> AlphaBarSchedule:
        """The noise schedule of generation; if it is refitted, each of this many positions has its own."""
        schedule: AlphaBarSchedule = SCHEDULES[self.schedule](self.num_timesteps)
        return self.build_adaptive_schedule(schedule, positions) if self.refit_every else schedule

    def build_training_schedule(self, schedule: AlphaBarSchedule) -> Schedule:
        """The schedule of training, with its noise multiplied by the factor."""
        rescaled: Schedule = self.rescaled_class(schedule, self.noise_factor or 1.0)
        return VariancePreserving(rescaled) if self.variance_preserving else rescaled

    @property
    def rescaling(self) -> Callable[[Schedule, float], Schedule]:
        return rescale_preserving if self.variance_preserving else Rescaled

    def loss_terms(self, length_predictor: LengthPredictor) -> list[LossTerm]:
        """The terms of eq. 2 that have a weight, the length, and the logged −log p(y | ẑ₀)."""
        terms = [
            MseLoss(weight=self.vlb_weight),
            AnchorLoss(weight=self.anchor_weight, smoothing=self.label_smoothing),
            RoundingLoss(weight=self.rounding_weight),
        ]
        return [
            *(term for term in terms if term.weight),
            LengthLoss(weight=self.length_loss_weight, length_predictor=length_predictor),
            # The anchor loss computes it anyway.
            NllLoss(weight=None, always_computed=bool(self.anchor_weight)),
        ]
