"""Solvers: the coefficients of one step between any two noise levels t > s, for all steps of a run.

    z_s = α_s·ẑ₀ + σ_s·(√(1 − c²)·ε̂ + c·ε),    ε̂ = (z_t − α_t·ẑ₀) / σ_t,    ρ = (α_t σ_s / α_s σ_t)²

`Ddim(eta)` draws fresh noise for the share c² = η²(1 − ρ). With eta = 1 this is ancestral sampling: DDPM's
posterior q(z_s | z_t, ẑ₀) for neighbouring steps, its respaced form for strided ones (Difformer, section
3.3). With eta = 0 it is deterministic, and for rectified flow (α = 1 − t, σ = t) it is Euler's method.
`PriorSampling` draws z_s from q(z_s | ẑ₀), c² = 1, at some steps (SeqDiffuSeq, appendix E).

A solver of order 2 is the multistep DPM-Solver++ 2M (Lu et al., 2022). It puts ẑ₀ + (h / 2h′)·(ẑ₀ − ẑ₀′) in
the place of ẑ₀, where ẑ₀′ is the previous estimate and h, h′ are the last two steps in log α/σ.

All of these are one linear step with other coefficients. They are computed in float64 before the loop
(`StepTable`), so that a step needs only its number, and can be captured once as a CUDA graph and replayed.

    >>> solver = Solver(Ddim(eta=0.0))
    >>> times = strided_times(20, num_timesteps=2000)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import Tensor

from noise2text.core.random import SamplingKeyPurpose, make_key, uniform
from noise2text.nn.denoiser import NoiseLevel

__all__ = [
    "ANCESTRAL",
    "Ddim",
    "NoiselessArrivalSolver",
    "PriorSampling",
    "Solver",
    "StepCoefficients",
    "StepColumn",
    "StepTable",
    "Stochasticity",
    "join_step_tables",
    "step_coefficients",
    "strided_times",
]

Stochasticity = Callable[[Tensor], Tensor]
"""The share c² of the noise for which a step draws fresh noise, given ρ of all steps (K − 1, 1 or L, 1)."""


@dataclass(frozen=True)
class Ddim:
    """The share η²(1 − ρ): eta = 0 is deterministic DDIM, eta = 1 is ancestral sampling (DDPM)."""

    eta: float = 1.0

    def __call__(self, rho: Tensor) -> Tensor:
        return self.eta**2 * (1 - rho)


@dataclass(frozen=True)
class PriorSampling:
    """All of the noise at the steps that the seed picks, the same for all texts; `usual` elsewhere."""

    usual: Stochasticity
    rate: float  # p₁, the probability that a step is picked
    step_limit: float  # only steps whose number is below it are picked; it need not be whole
    seed: int

    def __call__(self, rho: Tensor) -> Tensor:
        steps = torch.arange(len(rho), device=rho.device)
        keys = make_key(self.seed, SamplingKeyPurpose.PRIOR_SAMPLING, steps)
        picked = (steps < self.step_limit) & (uniform(keys) < self.rate)
        return torch.where(picked[:, None, None], 1, self.usual(rho))


@dataclass(frozen=True)
class StepCoefficients:
    """One step: the noise level that it leads to, and what it multiplies by; all are (1 or B, 1 or L, 1)."""

    level: NoiseLevel
    z_weight: Tensor
    z0_weight: Tensor
    previous_weight: Tensor
    noise_weight: Tensor


class StepColumn(IntEnum):
    """The columns of a step table: the noise level that a step leads to, and what it multiplies by."""

    ALPHA = 0
    SIGMA = 1
    TIMESTEP = 2
    Z_WEIGHT = 3
    Z0_WEIGHT = 4
    PREVIOUS_WEIGHT = 5
    NOISE_WEIGHT = 6


@dataclass(frozen=True)
class StepTable:
    """The coefficients of all K steps on the device; the first step draws the initial noise.

    All rows take the same steps (P = 1), or `owners` says which of P paths each row takes.
    """

    table: Tensor  # (K, P, 7, 1 or L), with the columns of `StepColumn`
    time_embedding: Tensor | None = None  # (K, P, W), computed in one pass for all steps
    owners: Tensor | None = None  # (B,), the path of each row

    def __len__(self) -> int:
        return len(self.table)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that have an entry for each step and path."""
        return [self.table] if self.time_embedding is None else [self.table, self.time_embedding]

    def row(self, number: Tensor) -> StepCoefficients:
        """The step of this number (1,), which stays on the device."""
        rows = [each.index_select(0, number)[0] for each in self.tensors]  # (P, 7, 1 or L) and (P, W)
        if self.owners is not None:
            rows = [each.index_select(0, self.owners) for each in rows]
        alpha, sigma, timestep, *weights = rows[0][..., None].unbind(1)  # in the order of `StepColumn`
        time_embedding = rows[1][:, None] if len(rows) > 1 else None
        return StepCoefficients(NoiseLevel(alpha, sigma, timestep[..., 0], time_embedding), *weights)


def join_step_tables(tables: Sequence[StepTable], owners: Tensor) -> StepTable:
    """The table of rows that take the steps of different tables; `owners` (B,) has the table of each row.

    A table with fewer steps repeats its last one, whose estimates nobody reads.
    """
    steps = max(map(len, tables))
    numbers = [torch.arange(steps, device=owners.device).clamp_max(len(each) - 1) for each in tables]
    parts = zip(*(each.tensors for each in tables), strict=True)
    joined = (
        torch.cat([each[own] for each, own in zip(part, numbers, strict=True)], dim=1) for part in parts
    )
    return replace(StepTable(*joined), owners=owners)


@dataclass(frozen=True)
class Solver:
    """How sampling steps are computed. Solvers of equal values are equal and can share their step tables.

    Fields:
        stochasticity: a function of ρ that returns the share that each step draws fresh noise for.
        order: 1, or 2 for the multistep solver.

    >>> import torch
    >>> from noise2text import Solver
    >>> from noise2text.diffusion.schedules import CosineSchedule
    >>> from noise2text.diffusion.solvers import StepColumn, strided_times
    >>> def in_the_first_half(rho):  # ancestral first, then deterministic
    ...     is_early = torch.arange(len(rho)) < len(rho) / 2
    ...     return torch.where(is_early[:, None, None], 1 - rho, 0)
    >>> levels = CosineSchedule()(strided_times(5, num_timesteps=2000), length=1)
    >>> Solver(in_the_first_half).steps(levels)[1:, StepColumn.NOISE_WEIGHT, 0] > 0
    tensor([ True,  True, False, False])
    """

    stochasticity: Stochasticity = Ddim()
    order: int = 1  # 1, or 2 for the multistep solver

    def steps(self, levels: NoiseLevel) -> Tensor:
        """The table (K, 7, 1 or L) of the steps through noise levels of falling times, one row per time."""
        now = NoiseLevel(levels.alpha[:-1], levels.sigma[:-1], levels.timestep[:-1])
        then = NoiseLevel(levels.alpha[1:], levels.sigma[1:], levels.timestep[1:])
        z_weight, z0_weight, noise_weight = step_coefficients(now, then, self.stochasticity)
        extrapolation = _extrapolation(levels) if self.order == 2 else torch.zeros_like(z0_weight)
        zeros = torch.zeros_like(levels.sigma[:1])
        columns = [  # in the order of `StepColumn`
            levels.alpha,
            levels.sigma,
            levels.timestep[..., None],
            torch.cat([zeros, z_weight]),
            torch.cat([zeros, z0_weight * (1 + extrapolation)]),
            torch.cat([zeros, -z0_weight * extrapolation]),
            torch.cat([levels.sigma[:1], noise_weight]),
        ]
        return torch.cat(torch.broadcast_tensors(*columns), dim=-1).mT.float()


@dataclass(frozen=True)
class NoiselessArrivalSolver(Solver):
    """A solver that adds no noise where a position arrives at its first timestep (AR-Diffusion).

    The mean of the step stays as it is.
    """

    def steps(self, levels: NoiseLevel) -> Tensor:
        table = super().steps(levels)  # (K, 7, 1 or L)
        arrives = table[1:, StepColumn.TIMESTEP] == 0
        table[1:, StepColumn.NOISE_WEIGHT].masked_fill_(arrives, 0)
        return table


ANCESTRAL = Solver()


def step_coefficients(
    now: NoiseLevel, then: NoiseLevel, stochasticity: Stochasticity = Ddim()
) -> tuple[Tensor, Tensor, Tensor]:
    """What multiplies z_t, ẑ₀ and new noise in z_s, in the precision of the levels.

    From pure noise to pure noise, where many steps crowd at time 1, ρ is 0/0: such a step changes nothing.
    """
    ratio = (now.alpha * then.sigma) / (then.alpha * now.sigma)
    rho = torch.where(then.alpha > 0, ratio, 1).square().clamp(max=1)
    share = stochasticity(rho)
    z_weight = then.sigma * (1 - share).sqrt() / now.sigma
    return z_weight, then.alpha - z_weight * now.alpha, then.sigma * share.sqrt()


def strided_times(steps: int, *, num_timesteps: int, stop_early: int = 0) -> Tensor:
    """`steps` evenly spaced times from 1 to 1/T, less the last `stop_early` of them."""
    return torch.linspace(1, 1 / num_timesteps, steps, dtype=torch.float64)[: steps - stop_early]


def _extrapolation(levels: NoiseLevel) -> Tensor:
    """h / 2h′ of every step; 0 for the first, and where h′ is ∞ (from pure noise) or 0 (no change).

    It is at most 1: two estimates say little about a step that is more than twice as long as the last one.
    """
    steps = (levels.alpha / levels.sigma).log().diff(dim=0)
    ratio = (steps[1:] / (2 * steps[:-1])).clamp(max=1)
    usable = steps[:-1].isfinite() & (steps[:-1] > 0)
    return torch.cat([torch.zeros_like(steps[:1]), torch.where(usable, ratio, 0)])
