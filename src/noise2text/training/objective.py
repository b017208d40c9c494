"""One training pass: pairs → canvas → noise → denoiser → terms.

All randomness but dropout is drawn before (`draw`), from keys that name the seed, the step and the row, so
that neither the order of work nor the number of processes changes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.random import Normal, gaussian, key, normal, uniform
from noise2text.data.layouts.canvas import Canvas
from noise2text.diffusion.losses import Spell, Tally, Term, Trace, spell
from noise2text.diffusion.time_samplers import Times
from noise2text.nn.denoiser import Denoiser, Level

__all__ = ["DiffusionObjective", "Draws", "Objective"]


@dataclass(frozen=True)
class Draws:
    """What chance decides for a batch."""

    t: Tensor  # (B,)
    weight: Tensor  # (B,), what makes up for the choice of t
    noise: Tensor  # (B, L, D)
    blur: Tensor  # (B, L, D), the noise between embedding and z₀
    guessed: bool  # whether this step trains with a guess (self-conditioning)


class Objective(nn.Module, ABC):
    """Weighted terms over what a system's forward pass leaves behind; diffusion and baselines alike.

    What it learns of the losses on the way (`observe`, `settle`) is kept in buffers, for the checkpoints.
    A term without a weight is only watched; of those, training computes the ones that it has to know
    (`always`: `seen` looks at them, or they come for nothing), and the others where somebody looks (`watch`).
    """

    def __init__(
        self, terms: Mapping[str, Term], weights: Mapping[str, float], *, always: Collection[str] = ()
    ) -> None:
        super().__init__()
        self.terms, self.weights, self.always = dict(terms), dict(weights), frozenset(always)
        self.watched = True  # whether somebody looks at what training does
        self.fused_spelling: Spell = spell
        self.fused_normal: Normal = normal
        self.recordable = True  # whether a pass is the same operations each time, without the host

    @property
    def spelling(self) -> Spell:
        """How surprises are computed."""
        return self.fused_spelling if self.training else spell

    @property
    def normal(self) -> Normal:
        """How noise is computed."""
        return self.fused_normal if self.training else normal

    @property
    def idle(self) -> frozenset[str]:
        """The terms that are left out now: nothing is learned from them, and nobody looks."""
        if self.watched or not self.training:
            return frozenset()
        return frozenset(self.terms).difference(self.weights, self.always)

    def watch(self, watched: bool) -> None:
        """Say whether somebody looks at the passes that come next; it changes nothing that is learned."""
        self.watched = watched

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        """How many places each term counts on this canvas."""
        return {name: term.mask(canvas).sum() for name, term in self.terms.items()}

    def coin(self, step_key: Tensor) -> Hashable:
        """What chance decides for a whole step: steps for which it falls alike run the same operations."""
        return None

    @abstractmethod
    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Any:
        """All that chance decides but dropout: for each row by its key, for the step by the step's."""

    @abstractmethod
    def forward(self, canvas: Canvas, draws: Any) -> dict[str, Tally]:
        """Every term's values for a batch of pairs, but for those that are idle."""

    def seen(self, draws: Any, tallies: Mapping[str, Tally]) -> tuple[Tensor, ...]:
        """What `observe` wants to know of a batch, a row a pair, so that rows of all processes are joined."""
        return ()

    def observe(self, *seen: Tensor) -> None:
        """Take note of a whole batch's losses."""

    def settle(self, step: int) -> None:
        """Adapt to what was observed, if it is time to; decided by the step's number alone."""

    def values(self, trace: Any) -> dict[str, Tensor]:
        """The terms' values; terms without a weight come last and leave nothing behind for gradients."""
        wanted = [name for name in self.terms if name not in self.idle]
        trained = {name: self.terms[name].value(trace) for name in wanted if name in self.weights}
        with torch.no_grad():
            others = {name: self.terms[name].value(trace) for name in wanted if name not in trained}
        return {name: (trained | others)[name] for name in wanted}

    def loss(self, means: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of the terms' means."""
        return torch.stack([weight * means[name] for name, weight in self.weights.items()]).sum()


class DiffusionObjective(Objective):
    """Noise the target to a random time, estimate it back, count the error."""

    def __init__(
        self,
        denoiser: Denoiser,
        schedule: nn.Module,
        times: Times,
        *,
        terms: Mapping[str, Term],
        weights: Mapping[str, float],
        self_conditioning: float = 0.5,
        blur: float = 0.0,
        always: Collection[str] = (),
    ) -> None:
        """`blur` is the standard deviation of z₀ around the embedding, √β₀ in the papers."""
        super().__init__(terms, weights, always=always)
        self.denoiser, self.schedule, self.times = denoiser, schedule, times
        self.self_conditioning, self.blur = self_conditioning, blur

    def coin(self, step_key: Tensor) -> bool:
        """Whether this step trains with a guess (self-conditioning)."""
        return bool(uniform(step_key) < self.self_conditioning)

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Draws:
        """The time and the noise of each row, and the coin of self-conditioning."""
        shape = canvas.tokens.shape[1], self.denoiser.space.dim
        drawn = partial(gaussian, keys, normal=self.normal)
        t, weight = self.times(uniform(key(keys, 0)))
        return Draws(
            t=t,
            weight=weight,
            noise=drawn(1, *shape),
            blur=drawn(2, *shape) if self.blur else torch.zeros((), device=keys.device),
            guessed=self.coin(step_key),
        )

    def forward(self, canvas: Canvas, draws: Draws) -> dict[str, Tally]:
        denoiser = self.denoiser
        held = denoiser.hold(canvas)
        clean = held.given  # (B, L, D)
        z0 = clean + self.blur * draws.blur
        level: Level = self.schedule(draws.t, z0.shape[1])
        held = replace(held, given=z0)
        z_t = held.hold(level.alpha.to(z0.dtype) * z0 + level.sigma.to(z0.dtype) * draws.noise)
        memory = denoiser.read(canvas.source)
        guess = None
        if draws.guessed:
            with torch.no_grad():
                guess = held.hold(denoiser(z_t, level, memory, held, None).mean)
        estimate = denoiser(z_t, level, memory, held, guess)
        first = (draws.t <= 1 / self.times.steps)[:, None, None]  # there the embedding itself is the target
        target = torch.where(first, clean, z0)
        trace = Trace(canvas, z0, target, estimate, memory, denoiser, level, self.spelling)
        values = {name: draws.weight[:, None] * value for name, value in self.values(trace).items()}
        return {name: Tally(value, self.terms[name].mask(canvas)) for name, value in values.items()}
