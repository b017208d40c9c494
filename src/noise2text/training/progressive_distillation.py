"""Progressive distillation (Salimans and Ho, 2022): a student does in one step what its teacher does in two.

A student of N steps is asked at the times t = 1, (N − 1)/N, …, 1/N, and steps to s = t − 1/N. From the same
noisy z_t, the teacher takes two deterministic steps, over the time m half-way, to z_s. The student learns the
estimate that leads there in one:

    α_s·x̃ + σ_s/σ_t·(z_t − α_t·x̃) = z_s,    so    x̃ = (z_s − σ_s/σ_t·z_t) / (α_s − σ_s/σ_t·α_t).

In the last step s is 0, and x̃ is the teacher's second estimate. The student's terms are the recipe's, with x̃
in the place of z₀ and the tokens that x̃ rounds to in the place of the target. A student of N/2 steps has the
student of N steps for its teacher, and so on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.schedules import Schedule
from noise2text.diffusion.solvers import Ddim, step_coefficients
from noise2text.diffusion.time_samplers import TimeSampler
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, NoiseLevel
from noise2text.training.objective import DiffusionObjective, Draws

__all__ = ["ProgressiveDistillation", "StudentTimes", "two_step_target"]


class StudentTimes(TimeSampler):
    """The times 1/N, 2/N, …, 1 at which a student of N steps is asked, with equal probability.

    >>> StudentTimes(2000, steps=2)(torch.tensor([0.1, 0.7]))[0]
    tensor([0.5000, 1.0000])
    """

    observes_losses = False

    def __init__(self, num_timesteps: int, *, steps: int) -> None:
        super().__init__(num_timesteps)
        self.steps = steps

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return (torch.floor(u * self.steps) + 1) / self.steps, torch.ones_like(u, dtype=torch.float)


class ProgressiveDistillation(DiffusionObjective):
    """The objective of a student of `steps` steps; the teacher is not trained and not saved.

    Rows at time 1 are not self-conditioned: generation has no earlier estimate there.
    """

    time_sampler: StudentTimes

    def __init__(
        self, denoiser: Denoiser, schedule: Schedule, *, teacher: Denoiser, steps: int, **options: Any
    ) -> None:
        """`schedule` is that of generation; the options are those of `DiffusionObjective`."""
        super().__init__(denoiser, schedule, StudentTimes(schedule.num_timesteps, steps=steps), **options)
        self._teacher = (teacher.eval().requires_grad_(False),)  # in a tuple: no part of this module

    def first_estimate(
        self, z_t: Tensor, level: NoiseLevel, encoded: EncoderOutput, constraint: Constraint, draws: Draws
    ) -> Tensor:
        return _forget_at_start(super().first_estimate(z_t, level, encoded, constraint, draws), draws)

    @torch.no_grad()
    def make_targets(
        self, canvas: Canvas, z0: Tensor, z_t: Tensor, constraint: Constraint, draws: Draws
    ) -> tuple[Canvas, Tensor]:
        """The canvas with the teacher's tokens at scored positions, and x̃ (B, L, D)."""
        (teacher,) = self._teacher
        encoded = teacher.encode(canvas.source)
        guess = None
        if draws.self_conditioned:
            level: NoiseLevel = self.schedule(draws.t, z0.shape[1])
            first = constraint.apply(teacher(z_t, level, encoded, constraint, None).z0)
            guess = _forget_at_start(first, draws)
        target = two_step_target(
            teacher,
            self.schedule,
            encoded,
            constraint,
            z_t,
            times=(draws.t, draws.t - 0.5 / self.time_sampler.steps, draws.t - 1 / self.time_sampler.steps),
            self_condition=guess,
        )
        tokens = teacher.embedding.logits(target).argmax(-1)
        return replace(canvas, tokens=torch.where(canvas.scored, tokens, canvas.tokens)), target


@torch.no_grad()
def _forget_at_start(estimate: Tensor, draws: Draws) -> Tensor:
    """The estimate (B, L, D), but zeros in rows at time 1."""
    return torch.where((draws.t == 1)[:, None, None], torch.zeros_like(estimate), estimate)


def two_step_target(
    teacher: Denoiser,
    schedule: Schedule,
    encoded: EncoderOutput,
    constraint: Constraint,
    z_t: Tensor,
    *,
    times: tuple[Tensor, Tensor, Tensor],
    self_condition: Tensor | None = None,
) -> Tensor:
    """x̃ (B, L, D), with which one step from t to s ends where the teacher's two steps over m end.

    times: t, m and s, each (B,); where s is 0, x̃ is the teacher's second estimate.
    """
    length = z_t.shape[1]
    start, middle, end = (schedule(time.clamp(min=0), length) for time in times)
    first = constraint.apply(teacher(z_t, start, encoded, constraint, self_condition).z0)
    z_m = constraint.apply(_step(z_t, first, start, middle))
    second = constraint.apply(teacher(z_m, middle, encoded, constraint, first).z0)
    z_s = constraint.apply(_step(z_m, second, middle, end))
    z_weight, z0_weight, _ = step_coefficients(start, end, Ddim(0.0))
    target = (z_s - z_weight.to(z_t.dtype) * z_t) / z0_weight.to(z_t.dtype)
    is_last = times[2] < 0.25 / schedule.num_timesteps  # 0, up to rounding
    return constraint.apply(torch.where(is_last[:, None, None], second, target))


def _step(z: Tensor, z0: Tensor, now: NoiseLevel, then: NoiseLevel) -> Tensor:
    """The deterministic step from one noise level to a lower one."""
    z_weight, z0_weight, _ = step_coefficients(now, then, Ddim(0.0))
    return z_weight.to(z.dtype) * z + z0_weight.to(z.dtype) * z0
