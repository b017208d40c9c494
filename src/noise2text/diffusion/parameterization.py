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
`least` is the least ᾱ that a reading is fit for; `Floored` keeps a schedule above it.

Trained with F times the noise (Difformer), a network answers for z = α·z₀ + Fσ·ε, and what it says is read
with that σ in generation, too, whose noise may be another. Near the end ε is almost z, and what is asked
of the network is the small rest; `Skipped` adds z to its answer, so that the rest is all that it has to find.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from noise2text.diffusion.sampler import coefficients
from noise2text.diffusion.schedules import Schedule
from noise2text.nn.denoiser import Denoiser, Estimate, Held, Level, Memory, Wrapped

__all__ = ["HEADS", "Z0", "Floored", "Head", "Mean", "Noise", "Reading", "Score", "Skipped"]


class Head(nn.Module, ABC):
    """A reading of a network's output, ẑ₀ = p·z + q·output."""

    least = 0.0  # of ᾱ, for which the reading is fit

    def __init__(self, schedule: Schedule, *, factor: float = 1.0) -> None:
        """A reading for a schedule whose noise training multiplies; most need only the level."""
        super().__init__()
        self.factor = factor

    @abstractmethod
    def factors(self, level: Level) -> tuple[Tensor, Tensor]:
        """p and q at a level, in its precision."""

    @property
    def alone(self) -> float:
        """The output as a multiple of z, where z is noise alone; 0 where it is none."""
        return 0.0

    def sigma(self, level: Level) -> Tensor:
        """The noise that training has at the level's α, whose own may be generation's."""
        return self.factor * (1 - level.alpha.square()).clamp(min=0).sqrt()

    def clean(self, output: Tensor, z: Tensor, level: Level) -> Tensor:
        """ẑ₀, given the output and the noisy z."""
        on_z, on_output = (factor.to(output.dtype) for factor in self.factors(level))
        return on_z * z + on_output * output

    def target(self, z0: Tensor, z: Tensor, level: Level) -> Tensor:
        """The output that is read as z₀."""
        on_z, on_output = (factor.to(z.dtype) for factor in self.factors(level))
        return (z0 - on_z * z) / on_output

    def weight(self, level: Level) -> Tensor:
        """What turns the squared error of ẑ₀ into that of the output, (B, 1 or L, 1)."""
        return self.factors(level)[1].square().reciprocal()

    def around(self, denoiser: Denoiser) -> Denoiser:
        """A denoiser that answers with ẑ₀, from one whose answer is to be read so."""
        return Reading(denoiser, self)


class Z0(Head):
    """The output is the clean estimate."""

    def factors(self, level: Level) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(level.alpha), torch.ones_like(level.alpha)

    def around(self, denoiser: Denoiser) -> Denoiser:
        """The denoiser itself."""
        return denoiser


class Noise(Head):
    """The output is the noise that was added."""

    least = 0.01

    @property
    def alone(self) -> float:
        return 1 / self.factor

    def factors(self, level: Level) -> tuple[Tensor, Tensor]:
        return 1 / level.alpha, -self.sigma(level) / level.alpha


class Score(Head):
    """The output is the gradient of log q(z_t | z₀)."""

    least = 0.01

    @property
    def alone(self) -> float:
        return -1 / self.factor**2

    def factors(self, level: Level) -> tuple[Tensor, Tensor]:
        return 1 / level.alpha, self.sigma(level).square() / level.alpha


class Mean(Head):
    """The output is the mean of z one step further down; the network's clock is the time there."""

    def __init__(self, schedule: Schedule, *, factor: float = 1.0) -> None:
        assert factor == 1  # the mean would be that of other noise than generation has
        super().__init__(schedule)
        self.schedule = schedule

    def factors(self, level: Level) -> tuple[Tensor, Tensor]:
        clock, length = level.clock[:, 0], level.alpha.shape[1]
        now, before = (self.schedule(t, length) for t in (clock + 1 / self.schedule.steps, clock))
        on_z, on_z0, _ = coefficients(now, before)
        return -on_z / on_z0, 1 / on_z0


class Skipped(Head):
    """Another reading, of an output from which the network leaves out what it would be of noise alone."""

    def __init__(self, head: Head, schedule: Schedule) -> None:
        super().__init__(schedule, factor=head.factor)
        self.head = head

    def factors(self, level: Level) -> tuple[Tensor, Tensor]:
        on_z, on_output = self.head.factors(level)
        return on_z + self.head.alone * on_output, on_output


class Reading(Wrapped):
    """A denoiser whose network answers with something else than the clean estimate."""

    def __init__(self, denoiser: Denoiser, head: Head) -> None:
        super().__init__(denoiser)
        self.head = head

    def forward(self, z: Tensor, level: Level, memory: Memory, held: Held, guess: Tensor | None) -> Estimate:
        output: Estimate = self.denoiser(z, level, memory, held, guess)
        mean = self.head.clean(output.mean, z, level)
        return Estimate(held.hold(mean), output.hidden)  # what is given carries no noise to be read off


class Floored(Schedule):
    """Another schedule that keeps a least ᾱ of signal: time 1 has the level at which that was reached.

    Generation still begins with noise alone, as if it began at that time.
    """

    def __init__(self, schedule: Schedule, least: float) -> None:
        super().__init__(schedule.steps)
        self.schedule, self.least = schedule, least

    def alpha_bar(self, t: Tensor) -> Tensor:
        return self.schedule.alpha_bar(t).clamp(min=self.least)

    def forward(self, t: Tensor, length: int) -> Level:
        level: Level = self.schedule(t, length)
        alpha_bar = level.alpha.square().clamp(min=self.least)
        return Level(alpha_bar.sqrt(), (1 - alpha_bar).sqrt(), level.clock)


HEADS: dict[str, type[Head]] = {"z0": Z0, "epsilon": Noise, "score": Score, "mean": Mean}
