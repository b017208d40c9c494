"""Groups of settings, of which the sections `diffusion` are composed.

A recipe inherits the groups that it understands and adds its own settings:

    @dataclass(frozen=True)
    class MyDiffusionConfig(DifformerPartsConfig, AdaptiveScheduleConfig):
        anchor_distance: float = option(2.0, "position of the anchor point")

An `option` says which values it takes. Where settings must fit together, a group refuses others in
`__post_init__`, and then calls that of the next group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noise2text.core.config import (
    Config,
    option,
)
from noise2text.core.errors import Problem
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.loss_aware_times import TIME_SAMPLERS
from noise2text.diffusion.schedules import (
    SCHEDULES,
    AdjustableRescaled,
    AlphaBarSchedule,
    Rescaled,
    Schedule,
)
from noise2text.diffusion.time_samplers import TimeSampler

__all__ = [
    "AdaptiveScheduleConfig",
    "DifformerPartsConfig",
    "NoiseFactorSearchConfig",
    "ScheduleConfig",
    "SelfConditioningConfig",
    "SourceDropoutConfig",
    "TimeSamplerConfig",
    "TimestepsConfig",
    "refuse_averages_of_adaptive_models",
    "require_whole_bins",
]


@dataclass(frozen=True)
class TimestepsConfig(Config):
    """The resolution of time."""

    num_timesteps: int = option(2000, "T, the resolution of time in training", minimum=1)


@dataclass(frozen=True)
class ScheduleConfig(TimestepsConfig):
    """Which of the schedules with a name it is."""

    schedule: str = option("sqrt", ", ".join(SCHEDULES), choices=SCHEDULES)


@dataclass(frozen=True)
class TimeSamplerConfig(TimestepsConfig):
    """How training times are drawn."""

    time_sampler: str = option(
        "uniform",
        "how training times are drawn: uniform or loss-aware (DiffuSeq, eq. 3)",
        choices=TIME_SAMPLERS,
    )

    def build_time_sampler(self) -> TimeSampler:
        """The distribution over the training times."""
        return TIME_SAMPLERS[self.time_sampler](self.num_timesteps)


@dataclass(frozen=True)
class SelfConditioningConfig(Config):
    """How often training conditions the network on its own estimate."""

    self_conditioning: float = option(
        0.5, "share of the updates with self-conditioning; 0 is none", minimum=0, maximum=1
    )


@dataclass(frozen=True)
class SourceDropoutConfig(Config):
    """How often training leaves out the source."""

    source_dropout: float = option(
        0.0, "share of the pairs trained without their source, for guidance", minimum=0, maximum=1
    )


@dataclass(frozen=True)
class AdaptiveScheduleConfig(TimestepsConfig):
    """A schedule that adapts to the losses (SeqDiffuSeq, 4.3)."""

    refit_every: int = option(
        0, "updates between two refits of the schedule to the losses; 0 keeps it", minimum=0
    )
    refit_start: int = option(0, "first update with a refit", minimum=0)
    refit_bin_size: int = option(20, "K, diffusion steps that share a bin of losses", minimum=1)
    refit_min_count: int = option(100, "losses that each bin of a position needs before a refit", minimum=1)

    def __post_init__(self) -> None:
        if self.refit_every:
            require_whole_bins(self, "refit_bin_size")
        super().__post_init__()

    def build_adaptive_schedule(self, start: AlphaBarSchedule, positions: int) -> AdaptiveSchedule:
        """The schedule that starts as `start` and adapts at each of this many positions."""
        return AdaptiveSchedule(
            start, positions, bin_size=self.refit_bin_size, min_count=self.refit_min_count
        )


@dataclass(frozen=True)
class NoiseFactorSearchConfig(TimestepsConfig):
    """How the noise factor is searched (Difformer), and whether again while the embeddings are learned."""

    max_dgs: float = option(
        0.15, "largest degeneration score (DGS) that a searched noise factor may leave", above=0, below=1
    )
    noise_factor_every: int = option(
        0, "updates between two searches of the noise factor on the learned embeddings; 0 keeps it", minimum=0
    )

    @property
    def rescaled_class(self) -> Callable[[Schedule, float], Schedule]:
        """The schedule of training: one whose factor may change, if it is searched again."""
        return AdjustableRescaled if self.noise_factor_every else Rescaled

    @property
    def rescaling(self) -> Callable[[Schedule, float], Schedule]:
        """How the searched factor is applied."""
        return Rescaled


@dataclass(frozen=True)
class DifformerPartsConfig(NoiseFactorSearchConfig):
    """Parts of Difformer that other recipes can be crossed with."""

    noise_factor: float = option(
        1.0, "F, factor of the noise in training (Difformer); 1 as in the paper", above=0
    )
    anchor_weight: float = option(
        0.0, "weight of Difformer's anchor loss, −log p(y | ẑ₀); 0 as in the paper", minimum=0
    )

    def build_training_schedule(self, schedule: Schedule) -> Schedule:
        """The schedule of training, with its noise multiplied by the factor."""
        if self.noise_factor == 1 and not self.noise_factor_every:
            return schedule
        return self.rescaled_class(schedule, self.noise_factor)


def require_whole_bins(config: Any, bin_size: str) -> None:
    """Refuse bins of losses, of the size in this setting, that do not divide the time."""
    size = getattr(config, bin_size)
    if config.num_timesteps % size or config.num_timesteps < 2 * size:
        raise Problem(
            f"The setting num_timesteps must be a multiple of {bin_size} and at least twice it, "
            f"not {config.num_timesteps} of {size}."
        )


def refuse_averages_of_adaptive_models(config: Any, *, average_best: int) -> None:
    """Refuse the average of models that belong to different schedules or noise factors."""
    if average_best > 1 and (config.refit_every or config.noise_factor_every):
        raise Problem(
            f"The setting average_best must be 1, not {average_best}, where the schedule is refitted or the "
            f"noise factor is searched again: weights before and after belong to different noise; set "
            f"ema_decay."
        )
