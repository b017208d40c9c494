"""What a network's output means (thesis, 2.1.4): z₀ itself, the noise ε, the score s, or the mean μ.

    z0       output = ẑ₀
    epsilon  ẑ₀ = (z − σ·ε̂) / α                                        (eq. 2.12a)
    score    ẑ₀ = (z + σ²·ŝ) / α,             ŝ = −ε̂ / σ                (eq. 2.12d)
    mean     ẑ₀ = (μ̂ − a·z) / b,              μ = a·z + b·z₀            (eq. 2.5b, 2.11a)

μ is the posterior's mean one step of 1/T down. Every reading is ẑ₀ = p·z + q·output, so the squared error
of the output is that of ẑ₀ divided by q²: α²/σ² (the signal-to-noise ratio) for ε, α²/σ⁴ for the score,
b² for μ.

The mean needs levels that fall: where a step changes nothing, b = 0. ε and the score divide by α, which is 0
in the end: what they get wrong there comes back σ/α times as large.
`min_alpha_bar` is the least ᾱ that a reading is fit for; `SignalFloor` keeps a schedule above it.

Trained with F times the noise (Difformer), a network answers for z = α·z₀ + Fσ·ε, and what it says is read
with that σ in generation, too, whose noise may be another. Near the end ε is almost z, and what is asked
of the network is the small rest; `ResidualOutput` adds z to its answer, so that the rest is all that it has to find.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from noise2text.diffusion.schedules import Schedule
from noise2text.diffusion.solvers import step_coefficients
from noise2text.nn.denoiser import Constraint, Denoiser, DenoiserWrapper, EncoderOutput, Estimate, NoiseLevel

__all__ = [
    "PARAMETERIZATIONS",
    "Parameterization",
    "ParameterizedDenoiser",
    "PredictMean",
    "PredictNoise",
    "PredictScore",
    "PredictZ0",
    "ResidualOutput",
    "SignalFloor",
]


class Parameterization(nn.Module, ABC):
    """A reading of a network's output, ẑ₀ = p·z + q·output."""

    min_alpha_bar = 0.0  # of ᾱ, for which the reading is fit

    def __init__(self, schedule: Schedule, *, noise_factor: float = 1.0) -> None:
        """A reading for a schedule whose noise training multiplies; most need only the level."""
        super().__init__()
        self.noise_factor = noise_factor

    @abstractmethod
    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        """p and q at a level, in its precision."""

    @property
    def noise_share(self) -> float:
        """The output as a multiple of z, where z is noise alone; 0 where it is none."""
        return 0.0

    def sigma(self, level: NoiseLevel) -> Tensor:
        """The noise that training has at the level's α, whose own may be generation's."""
        return self.noise_factor * (1 - level.alpha.square()).clamp(min=0).sqrt()

    def to_z0(self, output: Tensor, z: Tensor, level: NoiseLevel) -> Tensor:
        """ẑ₀, given the output and the noisy z."""
        z_weight, output_weight = (factor.to(output.dtype) for factor in self.coefficients_at(level))
        return z_weight * z + output_weight * output

    def target(self, z0: Tensor, z: Tensor, level: NoiseLevel) -> Tensor:
        """The output that is read as z₀."""
        z_weight, output_weight = (factor.to(z.dtype) for factor in self.coefficients_at(level))
        return (z0 - z_weight * z) / output_weight

    def weight(self, level: NoiseLevel) -> Tensor:
        """What turns the squared error of ẑ₀ into that of the output, (B, 1 or L, 1)."""
        return self.coefficients_at(level)[1].square().reciprocal()

    def wrap(self, denoiser: Denoiser) -> Denoiser:
        """A denoiser that answers with ẑ₀, from one whose answer is to be read so."""
        return ParameterizedDenoiser(denoiser, self)


class PredictZ0(Parameterization):
    """The output is the clean estimate."""

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(level.alpha), torch.ones_like(level.alpha)

    def wrap(self, denoiser: Denoiser) -> Denoiser:
        """The denoiser itself."""
        return denoiser


class PredictNoise(Parameterization):
    """The output is the noise that was added."""

    min_alpha_bar = 0.01

    @property
    def noise_share(self) -> float:
        return 1 / self.noise_factor

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        return 1 / level.alpha, -self.sigma(level) / level.alpha


class PredictScore(Parameterization):
    """The output is the gradient of log q(z_t | z₀)."""

    min_alpha_bar = 0.01

    @property
    def noise_share(self) -> float:
        return -1 / self.noise_factor**2

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        return 1 / level.alpha, self.sigma(level).square() / level.alpha


class PredictMean(Parameterization):
    """The output is the mean of z one step further down; the network's clock is the time there."""

    def __init__(self, schedule: Schedule, *, noise_factor: float = 1.0) -> None:
        assert noise_factor == 1  # the mean would be that of other noise than generation has
        super().__init__(schedule)
        self.schedule = schedule

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        timestep, length = level.timestep[:, 0], level.alpha.shape[1]
        now, before = (self.schedule(t, length) for t in (timestep + 1 / self.schedule.steps, timestep))
        z_weight, z0_weight, _ = step_coefficients(now, before)
        return -z_weight / z0_weight, 1 / z0_weight


class ResidualOutput(Parameterization):
    """Another reading, of an output from which the network leaves out what it would be of noise alone."""

    def __init__(self, parameterization: Parameterization, schedule: Schedule) -> None:
        super().__init__(schedule, noise_factor=parameterization.noise_factor)
        self.parameterization = parameterization

    def coefficients_at(self, level: NoiseLevel) -> tuple[Tensor, Tensor]:
        z_weight, output_weight = self.parameterization.coefficients_at(level)
        return z_weight + self.parameterization.noise_share * output_weight, output_weight


class ParameterizedDenoiser(DenoiserWrapper):
    """A denoiser whose network answers with something else than the clean estimate."""

    def __init__(self, denoiser: Denoiser, parameterization: Parameterization) -> None:
        super().__init__(denoiser)
        self.parameterization = parameterization

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        output: Estimate = self.denoiser(z, level, encoded, constraint, self_condition)
        mean = self.parameterization.to_z0(output.z0, z, level)
        return Estimate(
            constraint.apply(mean), output.hidden
        )  # what is given carries no noise to be read off


class SignalFloor(Schedule):
    """Another schedule that keeps a least ᾱ of signal: time 1 has the level at which that was reached.

    Generation still begins with noise alone, as if it began at that time.
    """

    def __init__(self, schedule: Schedule, min_alpha_bar: float) -> None:
        super().__init__(schedule.steps)
        self.schedule, self.min_alpha_bar = schedule, min_alpha_bar

    def alpha_bar(self, t: Tensor) -> Tensor:
        return self.schedule.alpha_bar(t).clamp(min=self.min_alpha_bar)

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        level: NoiseLevel = self.schedule(t, length)
        alpha_bar = level.alpha.square().clamp(min=self.min_alpha_bar)
        return NoiseLevel(alpha_bar.sqrt(), (1 - alpha_bar).sqrt(), level.timestep)


PARAMETERIZATIONS: dict[str, type[Parameterization]] = {
    "z0": PredictZ0,
    "epsilon": PredictNoise,
    "score": PredictScore,
    "mean": PredictMean,
}
