"""Parameterizations: what a network's output means, and how the clean estimate ẑ₀ follows from it.

    z0        output = ẑ₀
    epsilon   ẑ₀ = (z − σ·ε̂) / α                                       (Demirag, 2023, eq. 2.12a)
    score     ẑ₀ = (z + σ²·ŝ) / α,             ŝ = −ε̂ / σ               (Demirag, 2023, eq. 2.12d)
    mean      ẑ₀ = (μ̂ − a·z) / b,              μ = a·z + b·z₀           (Demirag, 2023, eq. 2.5b, 2.11a)
    velocity  ẑ₀ = (z − σ·v̂) / (α + σ),        v = ε − z₀               (rectified flow; Liu et al., 2023)

μ is the mean of DDPM's posterior one step of 1/T down. Every one of them is linear, ẑ₀ = p·z + q·output, so
the squared error of the output is that of ẑ₀ divided by q²: α²/σ² (the signal-to-noise ratio) for ε, α²/σ⁴
for the score, b² for μ, (1 + α/σ)² for the velocity.

ε and the score divide by α, which is 0 at the end of most schedules: an error becomes σ/α times as large
there. `min_alpha_bar` is the smallest ᾱ that they can work with; `SignalFloor` keeps a schedule above it. The
mean needs a signal that falls at every step: where a step changes nothing, b = 0.

α and σ are those of training at the same time. Generation may have another noise, such as Difformer's, which
multiplies it by F in training only; `for_sampling` gives the denoiser for it.

Near the end ε is almost equal to z, and the network has to predict a small difference. `ResidualOutput` adds
z to the output, so that the network predicts only this difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.diffusion.schedules import AlphaBarSchedule, Schedule
from noise2text.diffusion.solvers import step_coefficients
from noise2text.nn.denoiser import Constraint, Denoiser, DenoiserWrapper, EncoderOutput, Estimate, NoiseLevel

__all__ = [
    "PARAMETERIZATIONS",
    "Parameterization",
    "ParameterizedDenoiser",
    "PredictMean",
    "PredictNoise",
    "PredictScore",
    "PredictVelocity",
    "PredictZ0",
    "ResidualNoise",
    "ResidualOutput",
    "ResidualScore",
]


class Parameterization(nn.Module, ABC):
    """How ẑ₀ follows from a network's output: ẑ₀ = p·z + q·output.

    Args:
        schedule: the noise schedule of training.

    >>> import torch
    >>> from noise2text import Parameterization
    >>> from noise2text.diffusion.schedules import CosineSchedule
    >>> class PredictV(Parameterization):  # v = α·ε − σ·z₀ (Salimans and Ho, 2022), where α² + σ² = 1
    ...     def coefficients_at(self, level):
    ...         return level.alpha, -level.sigma
    >>> level = CosineSchedule()(torch.tensor([0.5]), length=1)
    >>> z0, noise = torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[1.0, 2.0]]])
    >>> z, v = level.add_noise(z0, noise), (level.alpha * noise - level.sigma * z0).float()
    >>> torch.allclose(PredictV(CosineSchedule()).to_z0(v, z, level), z0, atol=1e-6)
    True
    """

    min_alpha_bar = 0.0  # the smallest ᾱ that it can work with

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule

    @abstractmethod
    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        """p and q at a noise level of training, in its precision."""

    def output_per_noise(self, sigma: float) -> float:
        """The output for pure noise z = σ·ε as a multiple of z; 0 where it is no multiple of z."""
        return 0.0

    def to_z0(self, output: Tensor, z: Tensor, level: NoiseLevel) -> Tensor:
        """ẑ₀, given the output and the noisy z."""
        z_weight, output_weight = (weight.to(output.dtype) for weight in self.coefficients_at(level))
        return z_weight * z + output_weight * output

    def weight(self, level: NoiseLevel) -> Tensor:
        """1/q², the squared error of the output relative to that of ẑ₀, (B, 1 or L, 1)."""
        return self.coefficients_at(level)[1].square().reciprocal()

    def wrap(self, denoiser: Denoiser) -> Denoiser:
        """A denoiser that returns ẑ₀, around one that returns this parameterization's output."""
        return ParameterizedDenoiser(denoiser, self)

    @classmethod
    def validate(cls, schedule: AlphaBarSchedule, *, noise_factor: float, precision: str) -> None:
        """Raise a Problem for a schedule, noise factor or precision that this parameterization cannot use."""
        if cls.min_alpha_bar and not getattr(schedule, "min_alpha_bar", 0.0):
            raise Problem(
                "The setting min_alpha_bar must be above 0 for this parameterization: it divides by its root."
            )


class PredictZ0(Parameterization):
    """The output is the clean estimate."""

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(level.alpha), torch.ones_like(level.alpha)

    def wrap(self, denoiser: Denoiser) -> Denoiser:
        """The denoiser itself."""
        return denoiser


class PredictNoise(Parameterization):
    """The output is the noise ε."""

    min_alpha_bar = 0.01

    def output_per_noise(self, sigma: float) -> float:
        return 1 / sigma

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        return 1 / level.alpha, -level.sigma / level.alpha


class PredictScore(Parameterization):
    """The output is the gradient of log q(z_t | z₀)."""

    min_alpha_bar = 0.01

    def output_per_noise(self, sigma: float) -> float:
        return -1 / sigma**2

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        return 1 / level.alpha, level.sigma.square() / level.alpha


class PredictMean(Parameterization):
    """The output is the mean of DDPM's posterior one step further down, at the network's timestep."""

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        timestep, length = level.timestep[:, 0], level.alpha.shape[1]
        level_t, level_s = (
            self.schedule(t, length) for t in (timestep + 1 / self.schedule.num_timesteps, timestep)
        )
        z_weight, z0_weight, _ = step_coefficients(level_t, level_s)
        return -z_weight / z0_weight, 1 / z0_weight

    @classmethod
    def validate(cls, schedule: AlphaBarSchedule, *, noise_factor: float, precision: str) -> None:
        times = torch.arange(1, schedule.num_timesteps + 1, dtype=torch.float64) / schedule.num_timesteps
        alpha_bar = schedule.alpha_bar(times)
        if schedule.num_timesteps > 1 and not bool(
            (alpha_bar.diff(dim=0) < 0).all() and (alpha_bar[-2] > 0).all()
        ):
            raise Problem(
                "The setting parameterization=mean needs a signal that falls at every step: set no "
                "min_alpha_bar, no schedule=position-sigmoid, and so few num_timesteps that some signal is "
                "left before the last one."
            )
        if noise_factor != 1:
            raise Problem(
                "The setting parameterization=mean takes no noise_factor: the mean of the next step depends "
                "on the noise of generation, which then differs from that of training."
            )
        if precision == "bfloat16":
            raise Problem(
                "The setting parameterization=mean takes no precision=bfloat16: z0 is a small part of the "
                "mean of the next step, and rounding errors would be as large as z0."
            )


class PredictVelocity(Parameterization):
    """The output is v = ε − z₀, the velocity from clean to noise on a straight line (rectified flow)."""

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        return 1 / (level.alpha + level.sigma), -level.sigma / (level.alpha + level.sigma)


class ResidualOutput(Parameterization):
    """Another parameterization, of whose output the network predicts the difference from pure noise."""

    inner_class: type[Parameterization]

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.inner = self.inner_class(schedule)
        self.output_of_noise = self.inner.output_per_noise(schedule.final_sigma)

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        z_weight, output_weight = self.inner.coefficients_at(level)
        return z_weight + self.output_of_noise * output_weight, output_weight


class ResidualNoise(ResidualOutput):
    """The output is ε minus the ε of pure noise."""

    inner_class, min_alpha_bar = PredictNoise, PredictNoise.min_alpha_bar


class ResidualScore(ResidualOutput):
    """The output is the score minus the score of pure noise."""

    inner_class, min_alpha_bar = PredictScore, PredictScore.min_alpha_bar


class ParameterizedDenoiser(DenoiserWrapper):
    """A denoiser around one whose output is not the clean estimate."""

    def __init__(self, denoiser: Denoiser, parameterization: Parameterization) -> None:
        super().__init__(denoiser)
        self.parameterization = parameterization

    def for_sampling(self, schedule: Any) -> Denoiser:
        relative_sigma = schedule.final_sigma / self.parameterization.schedule.final_sigma
        return self if relative_sigma == 1 else _TrainingNoiseDenoiser(self, relative_sigma)

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        output: Estimate = self.denoiser(z, level, encoded, constraint, self_condition)
        z0 = self.parameterization.to_z0(output.z0, z, level)
        return Estimate(constraint.apply(z0), output.hidden)  # given positions carry no noise to remove


class _TrainingNoiseDenoiser(DenoiserWrapper):
    """A denoiser that gets the σ of training, where that of generation is `relative_sigma` times as large."""

    def __init__(self, denoiser: Denoiser, relative_sigma: float) -> None:
        super().__init__(denoiser)
        self.relative_sigma = relative_sigma

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        level = replace(level, sigma=level.sigma / self.relative_sigma)
        estimate: Estimate = self.denoiser(z, level, encoded, constraint, self_condition)
        return estimate


PARAMETERIZATIONS: dict[str, type[Parameterization]] = {
    "z0": PredictZ0,
    "epsilon": PredictNoise,
    "score": PredictScore,
    "mean": PredictMean,
    "velocity": PredictVelocity,
    "residual-epsilon": ResidualNoise,
    "residual-score": ResidualScore,
}
"""By the names of the setting `parameterization`; called with the schedule of training."""
