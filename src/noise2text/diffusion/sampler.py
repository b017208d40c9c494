"""The way down from noise to text, one step between any two levels t > s:

    z_s = α_s·ẑ₀ + σ_s·(√(1 − c²)·ε̂ + c·ε),    ε̂ = (z_t − α_t·ẑ₀) / σ_t,    ρ = (α_t σ_s / α_s σ_t)²

c² = 1 − ρ is ancestral sampling: it equals DDPM's posterior q(z_s | z_t, ẑ₀) for neighbouring steps and
its respaced form for strided ones (Difformer, section 3.3); c² = η²(1 − ρ) is DDIM with eta; c² = 1 draws
z_s anew from the prior around ẑ₀. The second-order multistep solver (DPM-Solver++ 2M; Lu et al., 2022) puts
ẑ₀ + (h / 2h′)·(ẑ₀ − ẑ₀′) in the place of ẑ₀, where ẑ₀′ is the estimate before and h, h′ are the steps in
log α/σ; without fresh noise it follows the probability flow with an error that falls with the square of h.

All of these are one linear step with other factors. The factors are made in float64 before the loop; the
first row draws the noise to start from. So a step needs nothing but its number, and can be captured once and
replayed (`decoding/captured.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from noise2text.core.devices import copy_to_device
from noise2text.core.random import gaussian_noise
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel

__all__ = [
    "BuildStepTable",
    "Guide",
    "Proposal",
    "SampledStep",
    "SamplerState",
    "StepCoefficients",
    "StepFunction",
    "StepTable",
    "Stochasticity",
    "ancestral",
    "build_step_table",
    "coefficients",
    "compute_step_table",
    "ddim",
    "eager",
    "initial_state",
    "sample",
    "step",
    "strided_times",
    "unguided",
]

NOISE_BUFFER = 1 << 16  # numbers of noise that are drawn at once, for as many steps as they last

Stochasticity = Callable[[Tensor], Tensor]
"""The share c² of the noise that is drawn afresh, given ρ."""


@dataclass(frozen=True)
class SampledStep:
    """One stop on the way: the time, the canvas there, and what the denoiser made of it."""

    step: int
    time: float
    z: Tensor  # (B, L, D)
    estimate: Estimate


@dataclass(frozen=True)
class StepCoefficients:
    """One step of a path: its level, and the factors that lead to it."""

    level: NoiseLevel
    z_weight: Tensor  # (1, 1 or L, 1), as all that follow
    z0_weight: Tensor
    previous_weight: Tensor
    noise_weight: Tensor


@dataclass(frozen=True)
class StepTable:
    """The steps of a walk; the first leads from nothing to noise."""

    table: Tensor  # (K, 7, 1 or L): alpha, sigma, clock, and the four factors
    time_embedding: Tensor | None = None  # (K, 1, W), what the network makes of the clocks

    def __len__(self) -> int:
        return len(self.table)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that there are."""
        return [self.table] if self.time_embedding is None else [self.table, self.time_embedding]

    def row(self, number: Tensor) -> StepCoefficients:
        """The row of a step whose number (1,) stays on the device."""
        alpha, sigma, timestep, *factors = self.table.index_select(0, number)[..., None].unbind(1)
        time_embedding = None if self.time_embedding is None else self.time_embedding.index_select(0, number)
        return StepCoefficients(NoiseLevel(alpha, sigma, timestep[..., 0], time_embedding), *factors)


@dataclass(frozen=True)
class SamplerState:
    """Where a walk is: the canvas, its estimate, and the estimate before."""

    z: Tensor  # (B, L, D)
    estimate: Estimate
    previous: Tensor  # (B, L, D)


StepFunction = Callable[[int], SamplerState]
"""Goes so many steps further down with each call."""
PrepareSteps = Callable[[Denoiser, EncoderOutput, Constraint, Tensor, StepTable], StepFunction]
BuildStepTable = Callable[[Denoiser, nn.Module, Tensor, int, torch.device], StepTable]
"""A denoiser's path down a schedule by the given times, for canvases of a length, on a device."""


@dataclass(frozen=True)
class Proposal:
    """Where a step is about to land: at z ~ N(mean, deviation²), on the next level."""

    z: Tensor  # (B, L, D)
    mean: Tensor  # (B, L, D)
    std: Tensor  # (1, 1 or L, 1)
    level: NoiseLevel

    def copy(self) -> Proposal:
        """The same with tensors of its own."""
        level = NoiseLevel(self.level.alpha.clone(), self.level.sigma.clone(), self.level.timestep.clone())
        return Proposal(self.z.clone(), self.mean.clone(), self.std.clone(), level)


Guide = Callable[[Proposal], Tensor]
"""Moves a landing's z elsewhere (classifier guidance)."""


def unguided(proposal: Proposal) -> Tensor:
    """z as it fell."""
    return proposal.z


def ancestral(rho: Tensor) -> Tensor:
    """The fresh share of DDPM's posterior."""
    return 1 - rho


def ddim(eta: float) -> Stochasticity:
    """The fresh share of DDIM: 0 is deterministic, 1 ancestral."""
    return lambda rho: eta**2 * (1 - rho)


def coefficients(
    now: NoiseLevel, then: NoiseLevel, stochasticity: Stochasticity = ancestral
) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of z_t, ẑ₀ and fresh noise in z_s, in the levels' precision.

    From pure noise to pure noise, where many steps crowd at time 1, ρ is 0/0: such a step stays where it is.
    """
    ratio = (now.alpha * then.sigma) / (then.alpha * now.sigma)
    rho = torch.where(then.alpha > 0, ratio, 1).square().clamp(max=1)
    share = stochasticity(rho)
    z_weight = then.sigma * (1 - share).sqrt() / now.sigma
    return z_weight, then.alpha - z_weight * now.alpha, then.sigma * share.sqrt()


def strided_times(steps: int, *, num_timesteps: int, stop_early: int = 0) -> Tensor:
    """The times visited: `steps` evenly spaced ones from 1 to 1/T, less the last `stop_early`."""
    return torch.linspace(1, 1 / num_timesteps, steps, dtype=torch.float64)[: steps - stop_early]


def compute_step_table(
    levels: NoiseLevel, *, stochasticity: Stochasticity = ancestral, order: int = 1
) -> StepTable:
    """The path through levels (a row a time, falling) by steps of the first or second order."""
    now = NoiseLevel(levels.alpha[:-1], levels.sigma[:-1], levels.timestep[:-1])
    then = NoiseLevel(levels.alpha[1:], levels.sigma[1:], levels.timestep[1:])
    z_weight, z0_weight, noise_weight = coefficients(now, then, stochasticity)
    extrapolation = _extrapolation(levels) if order == 2 else torch.zeros_like(z0_weight)
    zeros = torch.zeros_like(levels.sigma[:1])
    columns = [
        levels.alpha,
        levels.sigma,
        levels.timestep[..., None],
        torch.cat([zeros, z_weight]),
        torch.cat([zeros, z0_weight * (1 + extrapolation)]),
        torch.cat([zeros, -z0_weight * extrapolation]),
        torch.cat([levels.sigma[:1], noise_weight]),
    ]
    return StepTable(torch.cat(torch.broadcast_tensors(*columns), dim=-1).mT.float())


def build_step_table(
    denoiser: Denoiser,
    schedule: nn.Module,
    times: Tensor,
    length: int,
    device: torch.device,
    *,
    stochasticity: Stochasticity = ancestral,
    order: int = 1,
) -> StepTable:
    """The path down a schedule, made where its tables are, if any, and sent to the device.

    What the network makes of its clocks is made for all steps at once, unless each position has its own.
    """
    schedule_device = next((buffer.device for buffer in schedule.buffers()), "cpu")
    levels: NoiseLevel = schedule(times.to(schedule_device), length)  # a row a step
    table = copy_to_device(compute_step_table(levels, stochasticity=stochasticity, order=order).table, device)
    return StepTable(table, denoiser.embed_timestep(table[:, 2]) if table.shape[2] == 1 else None)


def _extrapolation(levels: NoiseLevel) -> Tensor:
    """h / 2h′ for every step; 0 for the first, and where h′ is ∞ (from pure noise) or 0 (no change).

    Where h is more than twice h′, it is held at 1: the two estimates say little about so long a way.
    """
    steps = (levels.alpha / levels.sigma).log().diff(dim=0)
    ratio = (steps[1:] / (2 * steps[:-1])).clamp(max=1)
    usable = steps[:-1].isfinite() & (steps[:-1] > 0)
    return torch.cat([torch.zeros_like(steps[:1]), torch.where(usable, ratio, 0)])


def step(
    denoiser: Denoiser,
    encoded: EncoderOutput,
    constraint: Constraint,
    noise: Tensor,
    row: StepCoefficients,
    state: SamplerState,
    *,
    guide: Guide = unguided,
) -> SamplerState:
    """One step down: from a spot to the one that the path's row leads to, with the step's noise."""
    last = state.estimate.z0
    mean = torch.addcmul(row.z_weight * state.z, row.z0_weight, last).addcmul(
        row.previous_weight, state.previous
    )
    sampled = torch.addcmul(mean, row.noise_weight, noise)
    z = constraint.apply(guide(Proposal(sampled, mean, row.noise_weight, row.level)))
    estimate = denoiser(z, row.level, encoded, constraint, last)
    return SamplerState(z, Estimate(constraint.apply(estimate.z0), estimate.hidden), previous=last)


def initial_state(constraint: Constraint) -> SamplerState:
    """Before the first step: nothing anywhere, each nothing in its own place."""
    z, mean, previous = (torch.zeros_like(constraint.given, dtype=torch.float) for _ in range(3))
    return SamplerState(z, Estimate(mean, mean), previous)


def eager(
    denoiser: Denoiser,
    encoded: EncoderOutput,
    constraint: Constraint,
    keys: Tensor,
    step_table: StepTable,
    *,
    guide: Guide = unguided,
) -> StepFunction:
    """Steps that are computed one operation after another."""
    state, noises = initial_state(constraint), _draw_step_noise(keys, len(step_table), constraint.given)

    def advance(count: int) -> SamplerState:
        nonlocal state
        for number, noise in islice(noises, count):
            state = step(denoiser, encoded, constraint, noise, step_table.row(number), state, guide=guide)
        return state

    return advance


def _draw_step_noise(keys: Tensor, steps: int, like: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The number of every step and its noise; what is small is drawn for several steps at once."""
    steps_per_draw = max(1, NOISE_BUFFER // max(1, like.numel()))
    for numbers in torch.arange(steps, device=keys.device).split(steps_per_draw):
        noises = gaussian_noise(keys, numbers[:, None], *like.shape[1:])  # (K, B, L, D)
        yield from zip(numbers.split(1), noises, strict=True)


def sample(
    denoiser: Denoiser,
    schedule: nn.Module,
    encoded: EncoderOutput,
    constraint: Constraint,
    keys: Tensor,
    times: Tensor,
    *,
    build_step_table: BuildStepTable = build_step_table,
    prepare: PrepareSteps = eager,
    last_only: bool = False,
) -> Iterator[SampledStep]:
    """The states at the given falling times, from pure noise; the last estimate is the answer.

    A state may be overwritten by the next one. A walk straight `last_only` has only the last.
    """
    step_table = build_step_table(denoiser, schedule, times, constraint.given.shape[1], keys.device)
    advance = prepare(denoiser, encoded, constraint, keys, step_table)
    count = len(times) if last_only else 1
    for number, time in list(enumerate(times.tolist()))[count - 1 :: count]:
        state = advance(count)
        yield SampledStep(number, time, state.z, state.estimate)
