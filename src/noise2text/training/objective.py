"""The objective of a training step: pairs → canvas → noise → denoiser → terms.

`draw` makes every random choice but dropout before the pass, from keys that name the seed, the step and the
row. So neither the order of work nor the number of processes changes what is drawn.

    draws = objective.draw(canvas, keys, step_key)
    losses = objective(canvas, draws)
    objective.loss(objective.means(losses, objective.counts(canvas))).backward()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.random import NormalSampler, RowKeyPurpose, gaussian_noise, make_key, normal, uniform
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import LossInputs, LossTerm, TokenLoss, TokenNllFunction, token_nll
from noise2text.diffusion.schedules import Schedule
from noise2text.diffusion.time_samplers import TimeSampler
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, NoiseLevel

__all__ = ["DiffusionObjective", "Draws", "Objective", "TokenLevels"]

TokenLevels = Callable[[Tensor, Tensor, Tensor, Tensor], NoiseLevel]
"""Noise levels from the times (B,), the tokens (B, L), z₀ and its noise (B, L, D): `BoundaryConditional`."""


@dataclass(frozen=True)
class Draws:
    """The random choices of a batch."""

    t: Tensor  # (B,)
    weight: Tensor  # (B,), the importance weight of t
    noise: Tensor  # (B, L, D)
    z0_noise: Tensor  # (B, L, D), the noise between the embedding and z₀
    self_conditioned: bool  # whether the denoiser sees its own first estimate
    self_condition_noise: Tensor  # (B, L, D), the noise added to that estimate


class Objective(nn.Module, ABC):
    """A weighted sum of named terms, for diffusion models and baselines alike.

    What an objective learns from the losses (`observe`, `adapt`) is in buffers, which checkpoints save.
    Most recipes need no subclass of their own: a `DiffusionObjective` takes any terms.

    Args:
        terms: the terms of the loss.

    >>> import torch
    >>> from noise2text import LossTerm, Objective
    >>> from noise2text.data.layouts.split import SplitLayout
    >>> from noise2text.data.ragged import RaggedRows
    >>> from noise2text.diffusion.losses import TokenLoss
    >>> class Unigrams(Objective):  # learns how frequent each of four tokens is
    ...     def __init__(self):
    ...         super().__init__([LossTerm("nll")])
    ...         self.logits = torch.nn.Parameter(torch.zeros(4))
    ...     def draw(self, canvas, keys, step_key):
    ...         return None  # nothing is random
    ...     def forward(self, canvas, draws):
    ...         return {"nll": TokenLoss(-self.logits.log_softmax(0)[canvas.tokens], canvas.scored)}
    >>> rows, unigrams = RaggedRows.from_lists([[1, 2, 3]]), Unigrams()
    >>> canvas = SplitLayout(pad=0).make_canvas(rows, rows)
    >>> loss = unigrams.loss(unigrams.means(unigrams(canvas, None), unigrams.counts(canvas)))
    >>> round(loss.item(), 4)  # log 4
    1.3863
    """

    terms_logged = True  # whether the next steps are logged; changes nothing that is learned
    graph_capturable = True  # whether every pass runs the same operations, without the host

    def __init__(self, terms: Iterable[LossTerm]) -> None:
        super().__init__()
        self.terms = {term.name: term for term in terms}
        self.weights = {name: term.weight for name, term in self.terms.items() if term.weight is not None}
        self.training_token_nll: TokenNllFunction = token_nll  # fused kernels replace both while training
        self.training_normal: NormalSampler = normal

    @property
    def skipped_terms(self) -> frozenset[str]:
        """The terms that are left out now: neither trained on nor logged at this step."""
        if self.terms_logged or not self.training:
            return frozenset()
        unused = (term for term in self.terms.values() if term.weight is None and not term.always_computed)
        return frozenset(term.name for term in unused)

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        """How many values of each term count on this canvas."""
        return {name: term.make_mask(canvas).sum() for name, term in self.terms.items()}

    def step_flags(self, step_key: Tensor) -> Hashable:
        """The random choices of a whole step; steps with equal flags run the same operations."""
        return None

    @abstractmethod
    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Any:
        """Every random choice but dropout: for each row by its key, for the step by the step's key."""

    @abstractmethod
    def forward(self, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        """The values of every term for a batch of pairs, without the skipped ones."""

    def means(self, losses: Mapping[str, TokenLoss], counts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each term's sum over this batch, divided by its count over the whole step."""
        return {name: loss.total() / counts[name] for name, loss in losses.items()}

    def loss(self, means: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of the terms' means."""
        return torch.stack([weight * means[name] for name, weight in self.weights.items()]).sum()

    def collect_observations(self, draws: Any, token_losses: Mapping[str, TokenLoss]) -> tuple[Tensor, ...]:
        """The tensors that `observe` reads, one row per pair, without gradients; () if it reads nothing.

        `observe` gets the rows of all processes, concatenated.
        """
        return ()

    def observe(self, *observed: Tensor) -> None:
        """Record the losses of a whole batch."""

    def adapt(self, step: int) -> None:
        """Adapt to what was observed, at steps that depend on the step's number alone."""


class DiffusionObjective(Objective):
    """Noise the target to a random time, estimate it, and measure the error.

    Args:
        denoiser: the network.
        schedule: the noise schedule of training.
        time_sampler: draws the times; one that draws them by their losses observes `observed_term`.
        terms: the terms of the loss.
        self_conditioning: the share of the steps in which the denoiser sees its own first estimate.
        z0_noise: √β₁ (β₀ where a paper counts from 0), the standard deviation of z₀ − embedding.
        self_condition_noise: the standard deviation of the noise on that first estimate (perturbed
            self-conditioning, FastDiSS, 2026): in few steps it is worse than a fresh one in training.
        token_levels: noise levels that depend on the tokens, in place of the schedule's.
        observed_term: the name of the term that the time sampler observes; by default the first one.

    >>> import noise2text, torch
    >>> from noise2text.data.tokenizer import learn_characters
    >>> from noise2text.diffusion.losses import AnchorLoss, MseLoss
    >>> from noise2text.diffusion.time_samplers import UniformTimes
    >>> recipe = noise2text.list_recipes()["diffuseq"]
    >>> model = recipe.build(recipe.preset("tiny"), learn_characters(["0123456789 -"]))
    >>> parts = model.denoiser, model.schedule, UniformTimes(2000)
    >>> objective = noise2text.DiffusionObjective(*parts, terms=[MseLoss("vlb"), AnchorLoss(weight=0.1)])
    >>> objective.weights
    {'vlb': 1.0, 'anchor': 0.1}
    """

    def __init__(
        self,
        denoiser: Denoiser,
        schedule: Schedule,
        time_sampler: TimeSampler,
        *,
        terms: Iterable[LossTerm],
        self_conditioning: float = 0.5,
        z0_noise: float = 0.0,
        self_condition_noise: float = 0.0,
        token_levels: TokenLevels | None = None,
        observed_term: str | None = None,
    ) -> None:
        super().__init__(terms)
        self.denoiser, self.schedule, self.time_sampler = denoiser, schedule, time_sampler
        self.self_conditioning, self.z0_noise = self_conditioning, z0_noise
        self.self_condition_noise, self.token_levels = self_condition_noise, token_levels
        self.observed_term = observed_term or next(iter(self.terms))

    def step_flags(self, step_key: Tensor) -> bool:
        """Whether this step trains with self-conditioning."""
        return bool(uniform(step_key) < self.self_conditioning)

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Draws:
        """The time and the noise of each row, and whether the step is self-conditioned."""
        shape = canvas.tokens.shape[1], self.denoiser.embedding.dim
        normal_sampler = self.training_normal if self.training else normal
        draw_gaussian = partial(gaussian_noise, keys, normal_sampler=normal_sampler)
        t, weight = self.time_sampler(uniform(make_key(keys, RowKeyPurpose.TIME)))
        no_noise = torch.zeros((), device=keys.device)
        z0_noise = draw_gaussian(RowKeyPurpose.Z0_NOISE, *shape) if self.z0_noise else no_noise
        self_conditioned = self.step_flags(step_key)
        is_perturbed = self_conditioned and self.self_condition_noise
        return Draws(
            t=t,
            weight=weight,
            noise=draw_gaussian(RowKeyPurpose.NOISE, *shape),
            z0_noise=z0_noise,
            self_conditioned=self_conditioned,
            self_condition_noise=(
                draw_gaussian(RowKeyPurpose.SELF_CONDITION_NOISE, *shape) if is_perturbed else no_noise
            ),
        )

    def noise_level(self, canvas: Canvas, z0: Tensor, draws: Draws) -> NoiseLevel:
        """The noise level of the rows, or of each of their positions."""
        if self.token_levels is not None:
            return self.token_levels(draws.t, canvas.tokens, z0, draws.noise)
        level: NoiseLevel = self.schedule(draws.t, z0.shape[1])
        return level

    @torch.no_grad()
    def first_estimate(
        self, z_t: Tensor, level: NoiseLevel, encoded: EncoderOutput, constraint: Constraint, draws: Draws
    ) -> Tensor:
        """What the denoiser sees as its own estimate in a self-conditioned step, (B, L, D)."""
        first = self.denoiser(z_t, level, encoded, constraint, None).z0
        return constraint.apply(first + self.self_condition_noise * draws.self_condition_noise)

    def make_targets(
        self, canvas: Canvas, z0: Tensor, z_t: Tensor, constraint: Constraint, draws: Draws
    ) -> tuple[Canvas, Tensor]:
        """The canvas with the tokens to learn, and the z₀ to estimate from z_t, both (B, L, …)."""
        return canvas, z0

    def forward(self, canvas: Canvas, draws: Draws) -> dict[str, TokenLoss]:
        denoiser = self.denoiser
        constraint = denoiser.constrain(canvas)
        embeddings = constraint.embeddings  # (B, L, D)
        z0 = embeddings + self.z0_noise * draws.z0_noise
        level = self.noise_level(canvas, z0, draws)
        constraint = replace(constraint, embeddings=z0)
        z_t = constraint.apply(level.add_noise(z0, draws.noise))  # partial noising: z₀ where tokens are given
        encoded = denoiser.encode(canvas.source)
        self_condition = None
        if draws.self_conditioned:
            self_condition = self.first_estimate(z_t, level, encoded, constraint, draws)
        estimate = denoiser(z_t, level, encoded, constraint, self_condition)
        canvas, z0 = self.make_targets(canvas, z0, z_t, constraint, draws)
        # At a position's first step the target is its embedding, not the noised z₀ (Diffusion-LM).
        is_first_step = level.timestep[..., None] * self.time_sampler.num_timesteps < 0.5  # (B, 1 or L, 1)
        target = torch.where(is_first_step, embeddings, z0)
        logits = denoiser.lazy_logits(estimate)
        # Several terms share one pass over the vocabulary.
        shared_nll: Any = cache(self.training_token_nll if self.training else token_nll)
        inputs = LossInputs(canvas, z0, target, estimate, encoded, denoiser, level, logits, shared_nll)
        losses, skipped = {}, self.skipped_terms
        # Terms that are trained on come first: what they share with the others is computed with gradients.
        for term in sorted(self.terms.values(), key=lambda term: term.weight is None):
            if term.name not in skipped:
                with torch.set_grad_enabled(torch.is_grad_enabled() and term.weight is not None):
                    values = draws.weight[:, None] * term.value(inputs)
                losses[term.name] = TokenLoss(values, term.make_mask(canvas))
        return {name: losses[name] for name in self.terms if name in losses}

    def collect_observations(self, draws: Draws, token_losses: Mapping[str, TokenLoss]) -> tuple[Tensor, ...]:
        """The times and the mean of the observed term in each row, if the time sampler observes losses."""
        if not self.time_sampler.observes_losses:
            return ()
        # Terms are multiplied by the weight of the time; the sampler observes them without it.
        return draws.t, token_losses[self.observed_term].row_means().detach() / draws.weight

    def observe(self, *observed: Tensor) -> None:
        self.time_sampler.observe(*observed)
