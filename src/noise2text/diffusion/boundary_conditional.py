"""Boundary-conditional diffusion (Gu et al., NeurIPS 2024): noise that begins where a token can be lost.

Logits are linear in z, f(z, w) = z·E[w]. On the path α·z₀ + σ·ε, token i is decoded until its logit equals
that of a rival j:

    σ/α = (f(z₀, i) − f(z₀, j)) / (f(ε, j) − f(ε, i)),    over the j with a positive denominator.

The smallest of these ratios is the boundary of the token for this noise, and inverting the schedule gives its
time t₀. Before t₀ there is nothing to learn: the token can be read off the canvas. So the canvas is at

    τ = r·t₀ + t·(1 − r·t₀)

in place of t, where r in [0, 1] is the confidence in the boundary; r = 0 is ordinary diffusion, r = 1 leaves
no time at which the token is still decodable. The network is still given t.

`BoundaryConditional` noises in training. `BoundarySampler` is the deterministic sampler that follows the same
path: ε̂ from z and ẑ₀, then t₀ and τ of the next time from (ẑ₀, ε̂), then z = α(τ)·ẑ₀ + σ(τ)·ε̂.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.core.errors import Problem
from noise2text.core.random import gaussian_noise
from noise2text.diffusion.sampler import OnStep, ReverseProcess, SampledStep
from noise2text.diffusion.schedules import Schedule
from noise2text.nn.denoiser import Estimate, NoiseLevel
from noise2text.nn.embeddings import TokenEmbedding

__all__ = ["BoundaryConditional", "BoundarySampler", "boundary_ratio", "time_at_ratio"]

GRID = 4096  # cells in which the schedule is inverted by linear interpolation
MAX_BOUNDARY_LOGITS = 1 << 26  # logits that are in memory at once


@torch.no_grad()
def boundary_ratio(embedding: TokenEmbedding, tokens: Tensor, z0: Tensor, noise: Tensor) -> Tensor:
    """σ/α (B, L) at which α·z₀ + σ·ε stops to decode to the tokens (B, L), in float64.

    It is 0 where z₀ itself does not decode to its token, and ∞ where the noise does.
    """
    size = max(1, MAX_BOUNDARY_LOGITS // len(embedding.weight))
    parts = (tokens.flatten(), z0.flatten(0, 1), noise.flatten(0, 1))
    ratios = []
    for own, clean, random in zip(*(part.split(size) for part in parts), strict=True):
        margin, pull = _margins(embedding, clean, own), -_margins(embedding, random, own)  # (N, V)
        tightest = torch.where(pull > 0, margin.double() / pull, torch.inf).amin(1)
        ratios.append(tightest.masked_fill(margin.amin(1) < 0, 0))
    return torch.cat(ratios).view(tokens.shape)


def _margins(embedding: TokenEmbedding, x: Tensor, own: Tensor) -> Tensor:
    """How far the logit of a position's own token is above each other one, (N, V), in full precision."""
    with torch.autocast(x.device.type, enabled=False):
        logits = embedding.logits(x).float()
    return logits.gather(1, own[:, None]) - logits


def time_at_ratio(schedule: Schedule, ratio: Tensor) -> Tensor:
    """The time at which σ/α of the schedule is the given ratio, in float64; 0 or 1 where it never is.

    The angle atan(σ/α) rises from 0 to π/2. It is inverted by interpolation over x, t = (1 − cos x) / 2,
    which is dense where schedules are steep: at both ends.
    """
    grid = torch.linspace(0, math.pi, GRID + 1, dtype=torch.float64, device=ratio.device)
    level: NoiseLevel = schedule((1 - grid.cos()) / 2, 1)
    angles = torch.atan2(level.sigma, level.alpha).flatten()
    wanted = torch.atan(ratio).clamp(angles[0], angles[-1]).contiguous()
    upper = torch.searchsorted(angles, wanted).clamp(1, GRID)
    low, high = angles[upper - 1], angles[upper]
    share = ((wanted - low) / (high - low)).nan_to_num(0)
    return (1 - torch.lerp(grid[upper - 1], grid[upper], share).cos()) / 2


@dataclass(frozen=True)
class BoundaryConditional:
    """Noise levels that depend on the token and its noise, for a schedule that is the same at all positions.

    Args:
        schedule: the noise schedule.
        embedding: the embeddings that round z to tokens, without a bias.
        confidence: r, from 0 (ordinary diffusion) to 1.

    >>> import torch
    >>> from noise2text.diffusion.schedules import CosineSchedule
    >>> embedding = TokenEmbedding(3, 2)
    >>> _ = embedding.weight.data.copy_(torch.tensor([[1.0, 0], [0, 1], [-1, -1]]))
    >>> tokens, noise = torch.tensor([[0]]), torch.tensor([[[0.0, 1.0]]])  # the noise pulls to token 1
    >>> z0 = embedding.embed(tokens).detach()
    >>> boundary = BoundaryConditional(CosineSchedule(), embedding, confidence=1.0)
    >>> z_t = boundary(torch.tensor([0.0]), tokens, z0, noise).add_noise(z0, noise)
    >>> embedding.logits(z_t).detach().round(decimals=2)  # tokens 0 and 1 are equally likely
    tensor([[[ 0.8200,  0.8200, -1.6300]]])
    """

    schedule: Schedule
    embedding: TokenEmbedding
    confidence: float

    def __post_init__(self) -> None:
        if self.embedding.bias is not None:
            raise Problem("Boundaries need embeddings without a bias, such as those of difformer.")

    def __call__(self, t: Tensor, tokens: Tensor, z0: Tensor, noise: Tensor) -> NoiseLevel:
        """The noise level of every position for rows at the times t (B,); the timestep is that of t."""
        at_t: NoiseLevel = self.schedule(t, tokens.shape[1])
        if at_t.alpha.shape[1] != 1:
            raise Problem("Boundaries need a noise schedule that is the same at all positions.")
        times = self.times(t, tokens, z0, noise)
        level: NoiseLevel = self.schedule(times.flatten(), 1)
        return NoiseLevel(level.alpha.view(*times.shape, 1), level.sigma.view(*times.shape, 1), at_t.timestep)

    def times(self, t: Tensor, tokens: Tensor, z0: Tensor, noise: Tensor) -> Tensor:
        """τ = r·t₀ + t·(1 − r·t₀) of every position, (B, L), in float64."""
        ratio = boundary_ratio(self.embedding, tokens, z0, noise)
        start = self.confidence * time_at_ratio(self.schedule, ratio)
        return start + t.double()[:, None] * (1 - start)


@dataclass(frozen=True)
class BoundarySampler:
    """The deterministic sampler of the boundary-conditional process; it has the signature of `sample`.

    With confidence 0 it is DDIM with eta = 0. It has a path of its own: the solver is not used.
    """

    confidence: float

    def __call__(self, process: ReverseProcess, on_step: OnStep | None = None) -> Estimate:
        """The clean estimate after the last step of the process, which starts from pure noise."""
        if process.guide is not None:
            raise Problem("Sampling along boundaries takes no classifier guidance: leave out one of them.")
        denoiser, constraint, stopping = process.denoiser, process.constraint, process.stopping
        embedding, z0 = denoiser.embedding, torch.zeros_like(constraint.embeddings)
        boundary = BoundaryConditional(process.schedule, embedding, self.confidence)
        noise = gaussian_noise(process.noise_keys, 0, *z0.shape[1:])  # (B, L, D)
        level = _first_level(process)
        for number, time in enumerate(process.times.tolist()):
            if number:
                now = torch.full((len(z0),), time, dtype=torch.float64, device=z0.device)
                level = boundary(now, embedding.logits(z0).argmax(-1), z0, noise)
            level = NoiseLevel(level.alpha.float(), level.sigma.float(), level.timestep.float())
            z = constraint.apply(level.add_noise(z0, noise))
            estimate = denoiser(z, level, process.encoded, constraint, z0)
            z0 = constraint.apply(estimate.z0)
            noise = (z - level.alpha * z0) / level.sigma
            estimate = Estimate(z0, estimate.hidden)
            estimate = estimate if stopping is None else stopping.keep_finished(estimate)
            if on_step is not None:
                on_step(SampledStep(time, z, estimate))
            if stopping is not None and stopping.is_over():
                break
        return estimate


def _first_level(process: ReverseProcess) -> NoiseLevel:
    """The noise level of the first time, the same for all rows: nothing is known of their tokens yet."""
    keys = process.noise_keys
    level: NoiseLevel = process.schedule(process.times[:1].to(keys.device).expand(len(keys)), 1)
    return level
