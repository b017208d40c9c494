"""The way down from noise to text, one step between any two levels t > s:

    z_s = α_s·ẑ₀ + σ_s·(√(1 − c²)·ε̂ + c·ε),    ε̂ = (z_t − α_t·ẑ₀) / σ_t,    ρ = (α_t σ_s / α_s σ_t)²

c² = 1 − ρ is ancestral sampling: it equals DDPM's posterior q(z_s | z_t, ẑ₀) for neighbouring steps and
its respaced form for strided ones (Difformer, section 3.3); c² = η²(1 − ρ) is DDIM with eta; c² = 1 draws
z_s anew from the prior around ẑ₀. The coefficients are made in float64 before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.diffusion.denoiser import Denoiser, Estimate, Held, Memory
from noise2text.diffusion.noise import gaussian
from noise2text.diffusion.schedules import Level

__all__ = ["Fresh", "State", "ancestral", "coefficients", "ddim", "strided", "walk"]

Fresh = Callable[[Tensor], Tensor]
"""The share c² of the noise that is drawn afresh, given ρ."""


@dataclass(frozen=True)
class State:
    """One stop on the way: the time, the canvas there, and what the denoiser made of it."""

    step: int
    time: float
    z: Tensor  # (B, L, D)
    estimate: Estimate


def ancestral(rho: Tensor) -> Tensor:
    """The fresh share of DDPM's posterior."""
    return 1 - rho


def ddim(eta: float) -> Fresh:
    """The fresh share of DDIM: 0 is deterministic, 1 ancestral."""
    return lambda rho: eta**2 * (1 - rho)


def coefficients(now: Level, then: Level, fresh: Fresh = ancestral) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of z_t, ẑ₀ and fresh noise in z_s, in the levels' precision."""
    rho = ((now.alpha * then.sigma) / (then.alpha * now.sigma)).square().clamp(max=1)
    share = fresh(rho)
    on_z = then.sigma * (1 - share).sqrt() / now.sigma
    return on_z, then.alpha - on_z * now.alpha, then.sigma * share.sqrt()


def strided(steps: int, *, resolution: int, stop_early: int = 0) -> Tensor:
    """The times visited: `steps` evenly spaced ones from 1 to 1/T, less the last `stop_early`."""
    return torch.linspace(1, 1 / resolution, steps, dtype=torch.float64)[: steps - stop_early]


def walk(
    denoiser: Denoiser,
    schedule: nn.Module,
    memory: Memory,
    held: Held,
    keys: Tensor,
    times: Tensor,
    *,
    fresh: Fresh = ancestral,
) -> Iterator[State]:
    """The states at the given falling times, from pure noise; the last estimate is the answer."""
    length, dim = held.given.shape[1:]
    levels: Level = schedule(times.to(keys.device), length)  # a row a step
    now = Level(levels.alpha[:-1], levels.sigma[:-1], levels.clock[:-1])
    then = Level(levels.alpha[1:], levels.sigma[1:], levels.clock[1:])
    on_z, on_x0, on_noise = (table.float() for table in coefficients(now, then, fresh))
    z = held.hold(levels.sigma[0].float() * gaussian(keys, 0, length, dim))
    guess = None
    for step, time in enumerate(times.tolist()):
        here = Level(levels.alpha[step, None], levels.sigma[step, None], levels.clock[step, None])
        estimate = denoiser(z, here, memory, held, guess)
        estimate = Estimate(held.hold(estimate.mean), estimate.hidden)
        yield State(step, time, z, estimate)
        if step + 1 == len(times):
            return
        noise = gaussian(keys, step + 1, length, dim)
        z = held.hold(on_z[step] * z + on_x0[step] * estimate.mean + on_noise[step] * noise)
        guess = estimate.mean
