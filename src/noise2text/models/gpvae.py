"""GPVAE (Du et al., 2022): a Gaussian-process prior over what the encoder of a pre-trained model says.

Each of the encoder's states hᵢ gets a random context variable zᵢ that is added to it:

    prior      z ~ GP(m(h), k),      k(hᵢ, hⱼ) = v · exp(−‖hᵢ − hⱼ‖² / 2r²)
    posterior  q(z | h) = N(μ(h), diag σ²(h))
    decoder    p(y | c),             c = h + W (μ + s·σ·ε),   ε ~ N(0, 1)
    loss       −log p(y | c) + KL(q ‖ prior)

m, μ, log σ² and W are linear; the dimensions of z are independent processes with one kernel. Training has
s = 1. In generation the scalar s trades quality for diversity: 0 is the posterior's mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.random import gaussian
from noise2text.data.layouts.canvas import Canvas, Source
from noise2text.diffusion.losses import Tally
from noise2text.nn.denoiser import Memory
from noise2text.nn.incremental_decoder import Writer
from noise2text.nn.pretrained import SequenceModel, remember
from noise2text.training.next_token import NextToken

__all__ = ["Drawn", "GpvaeObjective", "GpvaeWriter", "Latents", "covariance", "divergence"]

JITTER = 1e-4  # of the variance, on the diagonal, so that equal states have an invertible covariance


def covariance(states: Tensor, padding: Tensor, *, variance: float, scale: float) -> Tensor:
    """The kernel of every pair of states, (B, S, S), in float32; padding is independent of all, variance 1.

    The distances are exact where states are equal: the scale may be far below their rounding errors.
    """
    states = states.float()
    distances = torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist")
    kernel = variance * torch.exp(-0.5 * (distances / scale).square())
    one = torch.eye(states.shape[1], device=states.device)
    both = ~(padding[:, :, None] | padding[:, None, :])
    return torch.where(both, kernel + JITTER * variance * one, one)


def divergence(difference: Tensor, variance: Tensor, prior: Tensor) -> Tensor:
    """KL(N(μ, diag σ²) ‖ N(m, K)) of each dimension, (B, D); difference μ − m and σ² (B, S, D), K (B, S, S).

    ½ [tr(K⁻¹ diag σ²) + (μ − m)ᵀ K⁻¹ (μ − m) − S + log |K| − Σ log σ²]
    """
    root = torch.linalg.cholesky(prior)
    inverse = torch.cholesky_inverse(root)
    trace = (inverse.diagonal(dim1=1, dim2=2)[..., None] * variance).sum(1)
    distance = torch.linalg.solve_triangular(root, difference, upper=False).square().sum(1)
    determinant = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
    return 0.5 * (trace + distance - prior.shape[1] + determinant[:, None] - variance.log().sum(1))


@dataclass(frozen=True)
class Latents:
    """What the encoder says of the sources, and the posterior and the prior's mean of z there."""

    states: Tensor  # (B, S, W)
    padding: Tensor  # (B, S)
    mean: Tensor  # (B, S, W)
    log_variance: Tensor
    prior_mean: Tensor


class _Around(Writer):
    """A writer around another that writes for it."""

    inner: Writer
    recordable = False

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        scores: Tensor = self.inner(tokens, memory)
        return scores

    def begin(self, memory: Memory, hypotheses: int, *, length: int) -> Any:
        return self.inner.begin(memory, hypotheses, length=length)

    def step(
        self, tokens: Tensor, position: Tensor, notebook: Any, memory: Memory, *, visible: int
    ) -> Tensor:
        return self.inner.step(tokens, position, notebook, memory, visible=visible)

    def reorder(self, notebook: Any, parents: Tensor) -> None:
        self.inner.reorder(notebook, parents)


class GpvaeWriter(_Around):
    """An encoder-decoder between whose parts the context variables stand; plain reading takes their means."""

    inner: SequenceModel

    def __init__(self, inner: SequenceModel, *, variance: float, scale: float, initial: float) -> None:
        """`initial` is the standard deviation of the new layers' first weights."""
        super().__init__()
        self.inner, self.variance, self.scale = inner, variance, scale
        self.mean, self.log_variance, self.prior = (nn.Linear(inner.width, inner.width) for _ in range(3))
        self.into = nn.Linear(inner.width, inner.width, bias=False)
        for layer in (self.mean, self.log_variance, self.prior, self.into):
            for parameter in layer.parameters():
                nn.init.normal_(parameter, std=initial)

    def latents(self, source: Source) -> Latents:
        """The distributions of the context variables of each source."""
        states = self.inner.read(source).states
        return Latents(
            states, source.padding, self.mean(states), self.log_variance(states), self.prior(states)
        )

    def context(self, latents: Latents, noise: Tensor | float, *, scalar: float = 1.0) -> Memory:
        """The states with their context variables: the posterior's mean, and noise times its deviation."""
        deviation = (0.5 * latents.log_variance).exp()
        z = latents.mean + (scalar * noise * deviation).to(latents.mean.dtype)
        return remember(latents.states + self.into(z).to(latents.states.dtype), latents.padding)

    def divergence(self, latents: Latents) -> Tensor:
        """KL of each sentence, (B, 1): the mean over the dimensions of z."""
        with torch.autocast(latents.states.device.type, enabled=False):
            prior = covariance(latents.states, latents.padding, variance=self.variance, scale=self.scale)
            hidden = latents.padding[..., None]
            difference = (latents.mean.float() - latents.prior_mean.float()).masked_fill(hidden, 0.0)
            variance = latents.log_variance.float().exp().masked_fill(hidden, 1.0)
            return divergence(difference, variance, prior).mean(1, keepdim=True)

    def read(self, source: Source) -> Memory:
        return self.context(self.latents(source), 0.0)


class Drawn(_Around):
    """A GPVAE that reads each source with the noise of its key (B,), times a scalar."""

    inner: GpvaeWriter

    def __init__(self, inner: GpvaeWriter, keys: Tensor, *, scalar: float) -> None:
        super().__init__()
        self.inner, self.keys, self.scalar = inner, keys, scalar

    def read(self, source: Source) -> Memory:
        latents = self.inner.latents(source)
        noise = gaussian(self.keys, 0, *latents.mean.shape[1:])
        return self.inner.context(latents, noise, scalar=self.scalar)


class GpvaeObjective(NextToken):
    """The surprise at each next token, and once a sentence how far the posterior is from the process."""

    writer: GpvaeWriter

    def __init__(self, writer: GpvaeWriter, *, bos: int, label_smoothing: float, kl: float) -> None:
        super().__init__(writer, bos=bos, label_smoothing=label_smoothing)
        self.weights["kl"] = kl

    def counts(self, canvas: Canvas) -> dict[str, Tensor]:
        return super().counts(canvas) | {"kl": _sentences(canvas).sum()}

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> Tensor:  # type: ignore[override]
        """The noise of every context variable."""
        return gaussian(keys, 1, canvas.source.tokens.shape[1], self.writer.inner.width)

    def forward(self, canvas: Canvas, draws: Tensor) -> dict[str, Tally]:  # type: ignore[override]
        latents = self.writer.latents(canvas.source)
        spelled = self.spell(canvas, self.writer.context(latents, draws))
        return spelled | {"kl": Tally(self.writer.divergence(latents), _sentences(canvas))}


def _sentences(canvas: Canvas) -> Tensor:
    """True for each row with a target, (B, 1)."""
    return canvas.scored.any(1, keepdim=True)
