"""Settings of noise that recipes share: a schedule that adapts, and a factor that is searched again."""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option, require_at_least
from noise2text.core.errors import Problem
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.schedules import AdjustableRescaled, AlphaBarSchedule, Rescaled

__all__ = ["AdaptiveNoiseConfig", "refuse_averages_of_adaptive_models"]


@dataclass(frozen=True)
class AdaptiveNoiseConfig(Config):
    """What may adapt in training: the schedule (SeqDiffuSeq, 4.3) and the noise factor (Difformer)."""

    num_timesteps: int = option(2000, "T, the resolution of time in training")
    refit_every: int = option(0, "updates between two refits of the schedule to the losses; 0 keeps it")
    refit_start: int = option(0, "first update with a refit")
    refit_bin_size: int = option(20, "K, diffusion steps that share a bin of losses")
    refit_min_count: int = option(100, "losses that each bin of a position needs before a refit")
    max_dgs: float = option(0.15, "largest degeneration score (DGS) that the noise factor may leave")
    noise_factor_every: int = option(
        0, "updates between two searches of the noise factor on the learned embeddings; 0 keeps it"
    )

    def __post_init__(self) -> None:
        if not 0 < self.max_dgs < 1:
            raise Problem(f"The setting max_dgs must be above 0 and below 1, not {self.max_dgs}.")
        require_at_least(self, 0, "refit_every", "refit_start", "noise_factor_every")
        require_at_least(self, 1, "refit_bin_size", "refit_min_count", "num_timesteps")
        if self.refit_every:
            self.require_whole_bins()

    def require_whole_bins(self) -> None:
        """Refuse bins of losses that do not divide the time."""
        if self.num_timesteps % self.refit_bin_size or self.num_timesteps < 2 * self.refit_bin_size:
            raise Problem(
                f"The setting num_timesteps must be a multiple of refit_bin_size and at least twice it, "
                f"not {self.num_timesteps} of {self.refit_bin_size}."
            )

    def adapt(self, start: AlphaBarSchedule, positions: int) -> AdaptiveSchedule:
        """The schedule that starts as `start` and adapts at each of this many positions."""
        return AdaptiveSchedule(
            start, positions, bin_size=self.refit_bin_size, min_count=self.refit_min_count
        )

    @property
    def rescaling(self) -> type[Rescaled]:
        """The rescaling of training: one whose factor may change, if it is searched again."""
        return AdjustableRescaled if self.noise_factor_every else Rescaled


def refuse_averages_of_adaptive_models(config: AdaptiveNoiseConfig, *, average_best: int) -> None:
    """Refuse the average of models that belong to different schedules or noise factors."""
    if average_best > 1 and (config.refit_every or config.noise_factor_every):
        raise Problem(
            f"The setting average_best must be 1, not {average_best}, where the schedule is refitted or the "
            f"noise factor is searched again: weights before and after belong to different noise; set "
            f"ema_decay."
        )
