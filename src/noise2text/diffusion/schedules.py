"""Noise schedules: how noisy the canvas is at each time, z_t = α(t)·z₀ + σ(t)·ε.

Time runs from 0 (clean) to 1 (noise). A schedule gives α and σ independently of each other: nothing assumes
that α² + σ² = 1, or that either follows from the other. The papers' schedules do have that property: they are
curves ᾱ(t) = α(t)², most with ᾱ(0) = 1 (`AlphaBarSchedule`). The papers' T steps are the times 1/T, 2/T, …,
1, and T is only a resolution.

- sqrt    ᾱ ∝ 1 − √(t + s), s = 10⁻⁴                 (Diffusion-LM; Li et al., 2022)
- linear  −log ᾱ = 0.1·t + 9.95·t²                     (DDPM's β from 10⁻⁴ to 0.02 at T = 1000)
- cosine  ᾱ ∝ cos²(π/2 · (t + 0.008) / 1.008)          (Nichol and Dhariwal, 2021)

Rescaling by F (Difformer, eq. 3) leaves the signal and multiplies the noise by F; its variance-preserving
form (eq. 8) divides both by √(α² + F²σ²). Either way SNR′ = SNR / F². Where it is applied: in training by
`build_training_schedule` of the configs, in generation by `build_sampling_schedule` in `models/diffusion.py`.

A new schedule is a small class:

    class Constant(AlphaBarSchedule):
        def alpha_bar(self, t):
            return torch.full_like(t, 0.5)

A line in `SCHEDULES` gives it a name, which the setting `schedule` and `noise2text rescale --schedule` take.
A schedule that changes another one is a `ScheduleWrapper`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from noise2text.nn.denoiser import NoiseLevel

__all__ = [
    "SCHEDULES",
    "AdjustableRescaled",
    "AlphaBarSchedule",
    "CosineSchedule",
    "LinearSchedule",
    "QuadraticSchedule",
    "Rescaled",
    "Schedule",
    "ScheduleWrapper",
    "SignalFloor",
    "SqrtSchedule",
    "VariancePreserving",
    "rescale_preserving",
    "schedule_betas",
]


class Schedule(nn.Module, ABC):
    """α(t) and σ(t) at a resolution of T steps; the network reads the timestep t − 1/T (index over T).

    A schedule whose α² + σ² is 1 extends `AlphaBarSchedule` and needs only the curve ᾱ(t).

    Args:
        num_timesteps: T, the resolution of time in training.

    >>> import torch
    >>> from noise2text import Schedule
    >>> from noise2text.nn.denoiser import NoiseLevel
    >>> class RectifiedFlow(Schedule):  # α = 1 − t and σ = t
    ...     def forward(self, t, length):
    ...         sigma = t.double()[:, None, None]
    ...         return NoiseLevel(1 - sigma, sigma, self.timestep(t[:, None]))
    >>> RectifiedFlow(num_timesteps=1000)(torch.tensor([0.25]), length=8).alpha.item()
    0.75
    """

    def __init__(self, num_timesteps: int = 2000) -> None:
        super().__init__()
        self.num_timesteps = num_timesteps

    @abstractmethod
    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        """The noise level of each row at its time t (B,), for each of the first `length` positions."""

    @property
    def final_sigma(self) -> float:
        """σ at t = 1; the largest, where positions differ."""
        device = next((buffer.device for buffer in self.buffers()), "cpu")
        level: NoiseLevel = self(torch.ones(1, dtype=torch.float64, device=device), 1)
        return float(level.sigma.max())

    def timestep(self, t: Tensor) -> Tensor:
        """The timestep that the network is given at the time t: t − 1/T, at least 0.

        The papers count the T steps from 0, so the time i/T is their step i − 1, and the network is given
        that number over T.
        """
        return (t - 1 / self.num_timesteps).clamp(min=0)


class AlphaBarSchedule(Schedule):
    """A curve ᾱ(t) of which α = √ᾱ and σ = √(1 − ᾱ).

    Args:
        num_timesteps: T, the resolution of time in training.

    >>> import torch
    >>> from noise2text import AlphaBarSchedule
    >>> class HalfCosine(AlphaBarSchedule):
    ...     def alpha_bar(self, t):
    ...         return torch.cos(t * torch.pi / 2)
    >>> level = HalfCosine(num_timesteps=1000)(torch.tensor([0.0, 1.0]), length=8)
    >>> (level.alpha**2 + level.sigma**2).flatten().tolist()
    [1.0, 1.0]
    """

    @abstractmethod
    def alpha_bar(self, t: Tensor) -> Tensor:
        """ᾱ at the times t, in their own precision."""

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        """The noise level of each row at its time t (B,); the same at all positions."""
        return self.level(self.alpha_bar(t.double())[:, None], t[:, None])

    def level(self, alpha_bar: Tensor, t: Tensor) -> NoiseLevel:
        """The noise level of ᾱ (B, 1 or L) at the times t (B, 1 or L)."""
        signal = alpha_bar[..., None]
        return NoiseLevel(signal.sqrt(), (1 - signal).sqrt(), self.timestep(t))

    @property
    def final_sigma(self) -> float:
        device = next((buffer.device for buffer in self.buffers()), "cpu")
        alpha_bar = self.alpha_bar(torch.ones(1, dtype=torch.float64, device=device))
        return float((1 - alpha_bar).max().sqrt())

    @property
    def z0_noise(self) -> float:
        """√β₁ (β₀ where a paper counts from 0), the noise between the embedding and z₀."""
        return float(schedule_betas(self, self.num_timesteps)[0].sqrt())

    @property
    def final_alpha(self) -> float:
        """√ᾱ_T, what is left of z₀ in the end."""
        return self.measure_final_alpha(self)

    def measure_final_alpha(self, changed: AlphaBarSchedule) -> float:
        """√ᾱ_T of this schedule or of one that changes it, by the formula of this one."""
        return float((1 - schedule_betas(changed, self.num_timesteps)).prod().sqrt())


class SqrtSchedule(AlphaBarSchedule):
    """Diffusion-LM's square-root schedule; the closed form is negative at t = 1, where ᾱ is set to 0."""

    offset = 1e-4

    def alpha_bar(self, t: Tensor) -> Tensor:
        return (1 - (t + self.offset).sqrt()).clamp(min=0) / (1 - math.sqrt(self.offset))


class LinearSchedule(AlphaBarSchedule):
    """DDPM's linear β in the limit of many steps."""

    slope = (1e-4, 0.02)  # β at both ends, for a thousand steps

    def alpha_bar(self, t: Tensor) -> Tensor:
        low, high = self.slope
        return torch.exp(-1000 * (low * t + (high - low) / 2 * t**2))


class CosineSchedule(AlphaBarSchedule):
    """Nichol and Dhariwal's cosine schedule."""

    offset = 0.008

    def alpha_bar(self, t: Tensor) -> Tensor:
        angle = (t + self.offset) / (1 + self.offset) * (math.pi / 2)
        start = math.cos(self.offset / (1 + self.offset) * math.pi / 2) ** 2
        return angle.cos().clamp(min=0) ** 2 / start


class QuadraticSchedule(AlphaBarSchedule):
    """DiNoiSer's schedule, σ(t) = t: the time is the standard deviation of the noise, and ᾱ = 1 − t²."""

    def alpha_bar(self, t: Tensor) -> Tensor:
        return 1 - t.square()


class ScheduleWrapper(Schedule):
    """A schedule that changes the noise levels of another one."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule.num_timesteps)
        self.schedule = schedule


class _Rescaling(ScheduleWrapper):
    """A schedule whose noise is amplified by the factor F (Difformer, eq. 3)."""

    factor: float | Tensor

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        level: NoiseLevel = self.schedule(t, length)
        return NoiseLevel(level.alpha, self.factor * level.sigma, level.timestep)

    @property
    def final_sigma(self) -> float:
        return float(self.factor) * self.schedule.final_sigma


class Rescaled(_Rescaling):
    """Another schedule with `factor` times its noise (Difformer, eq. 3).

    Args:
        schedule: the other schedule.
        factor: F, what σ is multiplied by.

    >>> import torch
    >>> from noise2text import Rescaled
    >>> from noise2text.diffusion.schedules import CosineSchedule
    >>> plain, time = CosineSchedule(1000), torch.tensor([0.5])
    >>> level = Rescaled(plain, factor=4.0)(time, length=8)
    >>> bool(level.alpha == plain(time, 8).alpha), bool(level.sigma == 4 * plain(time, 8).sigma)
    (True, True)
    """

    factor: float

    def __init__(self, schedule: Schedule, factor: float) -> None:
        super().__init__(schedule)
        self.factor = factor


class AdjustableRescaled(_Rescaling):
    """A rescaling whose factor may change while it is trained with; it is saved with the weights."""

    factor: Tensor

    def __init__(self, schedule: Schedule, factor: float) -> None:
        super().__init__(schedule)
        self.register_buffer("factor", torch.tensor(factor, dtype=torch.float64))


class VariancePreserving(ScheduleWrapper):
    """Another schedule's signal-to-noise ratio with α² + σ² = 1; around Rescaled it is Difformer's eq. 8."""

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        level: NoiseLevel = self.schedule(t, length)
        norm = torch.hypot(level.alpha, level.sigma)
        return NoiseLevel(level.alpha / norm, level.sigma / norm, level.timestep)


def rescale_preserving(schedule: Schedule, factor: float) -> Schedule:
    """The schedule with the signal-to-noise ratio of `Rescaled` and α² + σ² = 1 (Difformer, eq. 8)."""
    return VariancePreserving(Rescaled(schedule, factor))


class SignalFloor(AlphaBarSchedule):
    """Another schedule, whose ᾱ does not fall below `min_alpha_bar`.

    Generation still begins with pure noise, as if it began at the time when ᾱ reaches that value.
    """

    def __init__(self, schedule: AlphaBarSchedule, min_alpha_bar: float) -> None:
        super().__init__(schedule.num_timesteps)
        self.schedule, self.min_alpha_bar = schedule, min_alpha_bar

    def alpha_bar(self, t: Tensor) -> Tensor:
        return self.schedule.alpha_bar(t).clamp(min=self.min_alpha_bar)

    @property
    def final_sigma(self) -> float:
        """That of pure noise, which generation begins with."""
        return self.schedule.final_sigma

    @property
    def z0_noise(self) -> float:
        return self.schedule.z0_noise

    def measure_final_alpha(self, changed: AlphaBarSchedule) -> float:
        return self.schedule.measure_final_alpha(changed)

    def forward(self, t: Tensor, length: int) -> NoiseLevel:
        level: NoiseLevel = self.schedule(t, length)
        alpha_bar = level.alpha.square().clamp(min=self.min_alpha_bar)
        return NoiseLevel(alpha_bar.sqrt(), (1 - alpha_bar).sqrt(), level.timestep)


def schedule_betas(schedule: AlphaBarSchedule, steps: int) -> Tensor:
    """The papers' β₁ … β_T: 1 − ᾱ(i/T)/ᾱ((i−1)/T), at most 0.999, in float64."""
    alpha_bar = schedule.alpha_bar(torch.linspace(0, 1, steps + 1, dtype=torch.float64))
    kept = (alpha_bar[1:] / alpha_bar[:-1]).nan_to_num(0)  # 0/0 is 0
    return (1 - kept).clamp(max=0.999)


SCHEDULES: dict[str, type[AlphaBarSchedule]] = {
    "sqrt": SqrtSchedule,
    "linear": LinearSchedule,
    "cosine": CosineSchedule,
}
"""By the names of the setting `schedule`."""
