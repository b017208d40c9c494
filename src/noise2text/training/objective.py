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

from noise2text.core.random import NormalSampler, gaussian_noise, make_key, normal, uniform
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import LossInputs, LossTerm, TokenLoss, TokenNllFunction, compute_token_nll
from noise2text.diffusion.time_samplers import TimeSampler
from noise2text.nn.denoiser import Denoiser, NoiseLevel

__all__ = ["DiffusionObjective", "Draws", "Objective"]


@dataclass(frozen=True)
class Draws:
    """What chance decides for a batch."""

    t: Tensor  # (B,)
    weight: Tensor  # (B,), what makes up for the choice of t
    noise: Tensor  # (B, L, D)
    z0_noise: Tensor  # (B, L, D), the noise between embedding and z₀
    self_conditioned: bool  # whether this step trains with a guess (self-conditioning)


class Objective(nn.Module, ABC):
    """Weighted terms over what a system's forward pass leaves behind; diffusion and baselines alike.

    What it learns of the losses on the way (`observe`, `update`) is kept in buffers, for the checkpoints.
    A term without a weight is only watched; of those, training computes the ones that it has to know
    (`always_computed`: `observed` looks at them, or they come for nothing), and the others where somebody
    looks (`log_terms`).
    """

    def __init__(
        self,
        terms: Mapping[str, LossTerm],
        weights: Mapping[str, float],
        *,
        always_computed: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.terms, self.weights, self.always_computed = (
            dict(terms),
            dict(weights),
            frozenset(always_computed),
        )
        self.terms_logged = True  # whether somebody looks at what training does
        self.fused_token_nll: TokenNllFunction = compute_token_nll
        self.fused_normal: NormalSampler = normal
        self.graph_capturable = True  # whether a pass is the same operations each time, without the host

    @property
    def token_nll(self) -> TokenNllFunction:
        """How surprises are computed."""
        return self.fused_token_nll if self.training else compute_token_nll

    @property
    def normal(self) -> NormalSampler:
        """How noise is computed."""
        return self.fused_normal if self.training else normal

    @property
    def skipped_terms(self) -> frozenset[str]:
        """The terms that are left out now: nothing is learned from them, and nobody looks."""
        if self.terms_logged or not self.training:
            return frozenset()
        return frozenset(self.terms).difference(self.weights, self.always_computed)

    def log_terms(self, terms_logged: bool) -> None:
        """Say whether somebody looks at the passes that come next; it changes nothing that is learned."""
        self.terms_logged = terms_logged

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        """How many places each term counts on this canvas."""
        return {name: term.mask(canvas).sum() for name, term in self.terms.items()}

    def step_flags(self, step_key: Tensor) -> Hashable:
        """What chance decides for a whole step: steps for which it falls alike run the same operations."""
        return None

    @abstractmethod
    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Any:
        """All that chance decides but dropout: for each row by its key, for the step by the step's."""

    @abstractmethod
    def forward(self, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        """Every term's values for a batch of pairs, but for those that are idle."""

    def observed(self, draws: Any, token_losses: Mapping[str, TokenLoss]) -> tuple[Tensor, ...]:
        """What `observe` wants to know of a batch, a row a pair, so that rows of all processes are joined."""
        return ()

    def observe(self, *observed: Tensor) -> None:
        """Take note of a whole batch's losses."""

    def update(self, step: int) -> None:
        """Adapt to what was observed, if it is time to; decided by the step's number alone."""

    def values(self, inputs: Any) -> dict[str, Tensor]:
        """The terms' values; terms without a weight come last and leave nothing behind for gradients."""
        computed = [name for name in self.terms if name not in self.skipped_terms]
        trained = {name: self.terms[name].value(inputs) for name in computed if name in self.weights}
        with torch.no_grad():
            others = {name: self.terms[name].value(inputs) for name in computed if name not in trained}
        return {name: (trained | others)[name] for name in computed}

    def loss(self, means: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of the terms' means."""
        return torch.stack([weight * means[name] for name, weight in self.weights.items()]).sum()


class DiffusionObjective(Objective):
    """Noise the target to a random time, estimate it back, count the error."""

    def __init__(
        self,
        denoiser: Denoiser,
        schedule: nn.Module,
        time_sampler: TimeSampler,
        *,
        terms: Mapping[str, LossTerm],
        weights: Mapping[str, float],
        self_conditioning: float = 0.5,
        z0_noise: float = 0.0,
        always_computed: Collection[str] = (),
    ) -> None:
        """`z0_noise` is the standard deviation of z₀ around the embedding, √β₀ in the papers."""
        super().__init__(terms, weights, always_computed=always_computed)
        self.denoiser, self.schedule, self.time_sampler = denoiser, schedule, time_sampler
        self.self_conditioning, self.z0_noise = self_conditioning, z0_noise

    def step_flags(self, step_key: Tensor) -> bool:
        """Whether this step trains with a guess (self-conditioning)."""
        return bool(uniform(step_key) < self.self_conditioning)

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Draws:
        """The time and the noise of each row, and the coin of self-conditioning."""
        shape = canvas.tokens.shape[1], self.denoiser.embedding.dim
        draw_gaussian = partial(gaussian_noise, keys, normal_sampler=self.normal)
        t, weight = self.time_sampler(uniform(make_key(keys, 0)))
        return Draws(
            t=t,
            weight=weight,
            noise=draw_gaussian(1, *shape),
            z0_noise=draw_gaussian(2, *shape) if self.z0_noise else torch.zeros((), device=keys.device),
            self_conditioned=self.step_flags(step_key),
        )

    def forward(self, canvas: Canvas, draws: Draws) -> dict[str, TokenLoss]:
        denoiser = self.denoiser
        constraint = denoiser.constrain(canvas)
        embeddings = constraint.given  # (B, L, D)
        z0 = embeddings + self.z0_noise * draws.z0_noise
        level: NoiseLevel = self.schedule(draws.t, z0.shape[1])
        constraint = replace(constraint, given=z0)
        z_t = constraint.apply(level.alpha.to(z0.dtype) * z0 + level.sigma.to(z0.dtype) * draws.noise)
        encoded = denoiser.encode(canvas.source)
        self_condition = None
        if draws.self_conditioned:
            with torch.no_grad():
                self_condition = constraint.apply(denoiser(z_t, level, encoded, constraint, None).z0)
        estimate = denoiser(z_t, level, encoded, constraint, self_condition)
        is_first_step = (draws.t <= 1 / self.time_sampler.steps)[
            :, None, None
        ]  # there the embedding itself is the target
        target = torch.where(is_first_step, embeddings, z0)
        inputs = LossInputs(canvas, z0, target, estimate, encoded, denoiser, level, self.token_nll)
        values = {name: draws.weight[:, None] * value for name, value in self.values(inputs).items()}
        return {name: TokenLoss(value, self.terms[name].mask(canvas)) for name, value in values.items()}
