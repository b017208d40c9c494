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

from noise2text.core.devices import send
from noise2text.core.random import gaussian
from noise2text.nn.denoiser import Denoiser, Estimate, Held, Level, Memory

__all__ = [
    "Fresh",
    "Landing",
    "Lay",
    "Path",
    "Row",
    "Spot",
    "State",
    "Steer",
    "Stepper",
    "ancestral",
    "coefficients",
    "ddim",
    "eager",
    "go",
    "lay",
    "pave",
    "start",
    "straight",
    "strided",
    "walk",
]

DRAWN = 1 << 16  # numbers of noise that are drawn at once, for as many steps as they last

Fresh = Callable[[Tensor], Tensor]
"""The share c² of the noise that is drawn afresh, given ρ."""


@dataclass(frozen=True)
class State:
    """One stop on the way: the time, the canvas there, and what the denoiser made of it."""

    step: int
    time: float
    z: Tensor  # (B, L, D)
    estimate: Estimate


@dataclass(frozen=True)
class Row:
    """One step of a path: its level, and the factors that lead to it."""

    level: Level
    on_z: Tensor  # (1, 1 or L, 1), as all that follow
    on_x0: Tensor
    on_before: Tensor
    on_noise: Tensor


@dataclass(frozen=True)
class Path:
    """The steps of a walk; the first leads from nothing to noise."""

    table: Tensor  # (K, 7, 1 or L): alpha, sigma, clock, and the four factors
    ticks: Tensor | None = None  # (K, 1, W), what the network makes of the clocks

    def __len__(self) -> int:
        return len(self.table)

    @property
    def parts(self) -> list[Tensor]:
        """The tensors that there are."""
        return [self.table] if self.ticks is None else [self.table, self.ticks]

    def at(self, number: Tensor) -> Row:
        """The row of a step whose number (1,) stays on the device."""
        alpha, sigma, clock, *factors = self.table.index_select(0, number)[..., None].unbind(1)
        ticks = None if self.ticks is None else self.ticks.index_select(0, number)
        return Row(Level(alpha, sigma, clock[..., 0], ticks), *factors)


@dataclass(frozen=True)
class Spot:
    """Where a walk is: the canvas, its estimate, and the estimate before."""

    z: Tensor  # (B, L, D)
    estimate: Estimate
    before: Tensor  # (B, L, D)


Stepper = Callable[[int], Spot]
"""Goes so many steps further down with each call."""
Prepare = Callable[[Denoiser, Memory, Held, Tensor, Path], Stepper]
Lay = Callable[[Denoiser, nn.Module, Tensor, int, torch.device], Path]
"""A denoiser's path down a schedule by the given times, for canvases of a length, on a device."""


@dataclass(frozen=True)
class Landing:
    """Where a step is about to land: at z ~ N(mean, deviation²), on the next level."""

    z: Tensor  # (B, L, D)
    mean: Tensor  # (B, L, D)
    deviation: Tensor  # (1, 1 or L, 1)
    level: Level

    def copy(self) -> Landing:
        """The same with tensors of its own."""
        level = Level(self.level.alpha.clone(), self.level.sigma.clone(), self.level.clock.clone())
        return Landing(self.z.clone(), self.mean.clone(), self.deviation.clone(), level)


Steer = Callable[[Landing], Tensor]
"""Moves a landing's z elsewhere (classifier guidance)."""


def straight(landing: Landing) -> Tensor:
    """z as it fell."""
    return landing.z


def ancestral(rho: Tensor) -> Tensor:
    """The fresh share of DDPM's posterior."""
    return 1 - rho


def ddim(eta: float) -> Fresh:
    """The fresh share of DDIM: 0 is deterministic, 1 ancestral."""
    return lambda rho: eta**2 * (1 - rho)


def coefficients(now: Level, then: Level, fresh: Fresh = ancestral) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of z_t, ẑ₀ and fresh noise in z_s, in the levels' precision.

    From pure noise to pure noise, where many steps crowd at time 1, ρ is 0/0: such a step stays where it is.
    """
    ratio = (now.alpha * then.sigma) / (then.alpha * now.sigma)
    rho = torch.where(then.alpha > 0, ratio, 1).square().clamp(max=1)
    share = fresh(rho)
    on_z = then.sigma * (1 - share).sqrt() / now.sigma
    return on_z, then.alpha - on_z * now.alpha, then.sigma * share.sqrt()


def strided(steps: int, *, resolution: int, stop_early: int = 0) -> Tensor:
    """The times visited: `steps` evenly spaced ones from 1 to 1/T, less the last `stop_early`."""
    return torch.linspace(1, 1 / resolution, steps, dtype=torch.float64)[: steps - stop_early]


def pave(levels: Level, *, fresh: Fresh = ancestral, order: int = 1) -> Path:
    """The path through levels (a row a time, falling) by steps of the first or second order."""
    now = Level(levels.alpha[:-1], levels.sigma[:-1], levels.clock[:-1])
    then = Level(levels.alpha[1:], levels.sigma[1:], levels.clock[1:])
    on_z, on_x0, on_noise = coefficients(now, then, fresh)
    ahead = _ahead(levels) if order == 2 else torch.zeros_like(on_x0)
    nothing = torch.zeros_like(levels.sigma[:1])
    columns = [
        levels.alpha,
        levels.sigma,
        levels.clock[..., None],
        torch.cat([nothing, on_z]),
        torch.cat([nothing, on_x0 * (1 + ahead)]),
        torch.cat([nothing, -on_x0 * ahead]),
        torch.cat([levels.sigma[:1], on_noise]),
    ]
    return Path(torch.cat(torch.broadcast_tensors(*columns), dim=-1).mT.float())


def lay(
    denoiser: Denoiser,
    schedule: nn.Module,
    times: Tensor,
    length: int,
    device: torch.device,
    *,
    fresh: Fresh = ancestral,
    order: int = 1,
) -> Path:
    """The path down a schedule, made where its tables are, if any, and sent to the device.

    What the network makes of its clocks is made for all steps at once, unless each position has its own.
    """
    near = next((buffer.device for buffer in schedule.buffers()), "cpu")
    levels: Level = schedule(times.to(near), length)  # a row a step
    table = send(pave(levels, fresh=fresh, order=order).table, device)
    return Path(table, denoiser.ticks(table[:, 2]) if table.shape[2] == 1 else None)


def _ahead(levels: Level) -> Tensor:
    """h / 2h′ for every step; 0 for the first, and where h′ is ∞ (from pure noise) or 0 (no change).

    Where h is more than twice h′, it is held at 1: the two estimates say little about so long a way.
    """
    steps = (levels.alpha / levels.sigma).log().diff(dim=0)
    ratio = (steps[1:] / (2 * steps[:-1])).clamp(max=1)
    usable = steps[:-1].isfinite() & (steps[:-1] > 0)
    return torch.cat([torch.zeros_like(steps[:1]), torch.where(usable, ratio, 0)])


def go(
    denoiser: Denoiser,
    memory: Memory,
    held: Held,
    noise: Tensor,
    row: Row,
    spot: Spot,
    *,
    steer: Steer = straight,
) -> Spot:
    """One step down: from a spot to the one that the path's row leads to, with the step's noise."""
    last = spot.estimate.mean
    mean = torch.addcmul(row.on_z * spot.z, row.on_x0, last).addcmul(row.on_before, spot.before)
    landed = torch.addcmul(mean, row.on_noise, noise)
    z = held.hold(steer(Landing(landed, mean, row.on_noise, row.level)))
    estimate = denoiser(z, row.level, memory, held, last)
    return Spot(z, Estimate(held.hold(estimate.mean), estimate.hidden), before=last)


def start(held: Held) -> Spot:
    """Before the first step: nothing anywhere, each nothing in its own place."""
    z, mean, before = (torch.zeros_like(held.given, dtype=torch.float) for _ in range(3))
    return Spot(z, Estimate(mean, mean), before)


def eager(
    denoiser: Denoiser, memory: Memory, held: Held, keys: Tensor, path: Path, *, steer: Steer = straight
) -> Stepper:
    """Steps that are computed one operation after another."""
    spot, noises = start(held), _drawn(keys, len(path), held.given)

    def step(count: int) -> Spot:
        nonlocal spot
        for number, noise in islice(noises, count):
            spot = go(denoiser, memory, held, noise, path.at(number), spot, steer=steer)
        return spot

    return step


def _drawn(keys: Tensor, steps: int, like: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The number of every step and its noise; what is small is drawn for several steps at once."""
    ahead = max(1, DRAWN // max(1, like.numel()))
    for numbers in torch.arange(steps, device=keys.device).split(ahead):
        noises = gaussian(keys, numbers[:, None], *like.shape[1:])  # (K, B, L, D)
        yield from zip(numbers.split(1), noises, strict=True)


def walk(
    denoiser: Denoiser,
    schedule: nn.Module,
    memory: Memory,
    held: Held,
    keys: Tensor,
    times: Tensor,
    *,
    lay: Lay = lay,
    prepare: Prepare = eager,
    through: bool = False,
) -> Iterator[State]:
    """The states at the given falling times, from pure noise; the last estimate is the answer.

    A state may be overwritten by the next one. A walk straight `through` has only the last.
    """
    path = lay(denoiser, schedule, times, held.given.shape[1], keys.device)
    step = prepare(denoiser, memory, held, keys, path)
    count = len(times) if through else 1
    for number, time in list(enumerate(times.tolist()))[count - 1 :: count]:
        spot = step(count)
        yield State(number, time, spot.z, spot.estimate)
