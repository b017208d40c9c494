"""Training with a noise schedule that is refitted to the losses, for any diffusion objective.

The schedule that adapts may be wrapped, as by Difformer's rescaling: the losses are those of the noise that
training has, and the refit changes the schedule inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.losses import TokenLoss
from noise2text.diffusion.schedules import Schedule, ScheduleWrapper
from noise2text.training.objective import DiffusionObjective, Draws

__all__ = ["AdaptiveObjective"]


class AdaptiveObjective(DiffusionObjective):
    """A diffusion objective whose schedule is refitted to the losses of one term.

    A time sampler that observes losses observes the mean of this term in each row.
    """

    def __init__(self, *parts: Any, refit_every: int, refit_start: int, **more: Any) -> None:
        """The observed term has one value per position and is computed at every step."""
        super().__init__(*parts, **more)
        self.refit_every, self.refit_start = refit_every, refit_start

    @property
    def adaptive_schedule(self) -> AdaptiveSchedule:
        """The schedule that adapts, without what is around it."""
        schedule: Schedule = self.schedule
        while isinstance(schedule, ScheduleWrapper):
            schedule = schedule.schedule
        assert isinstance(schedule, AdaptiveSchedule)
        return schedule

    def collect_observations(
        self, draws: Draws, token_losses: Mapping[str, TokenLoss]
    ) -> tuple[Tensor, Tensor, Tensor]:
        observed = token_losses[self.observed_term]
        # Both observe losses without the weight of the time.
        return draws.t, observed.values.detach() / draws.weight[:, None], observed.mask

    def observe(self, *observed: Tensor) -> None:
        self.adaptive_schedule.observe(*observed)
        if self.time_sampler.observes_losses:
            t, losses, mask = observed
            self.time_sampler.observe(t, TokenLoss(losses, mask).row_means())

    def adapt(self, step: int) -> None:
        """Refit the schedule every `refit_every` steps; before `refit_start`, only drop the losses.

        The refit is one step late, so that a model that is validated or saved at a multiple of `refit_every`
        still has the schedule that it was trained with.
        """
        previous = step - 1
        if not self.refit_every or previous % self.refit_every:
            return
        if previous < self.refit_start:
            self.adaptive_schedule.reset()
        else:
            self.adaptive_schedule.refit()
