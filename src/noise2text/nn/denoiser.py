"""A denoiser always answers with the clean estimate: ẑ₀ = f(z_t, level, source).

Whatever a network predicts, and whatever is wrapped around it, looks like this to the walk and to the
objective. What the source needs is read once a sentence (`EncoderOutput`); what is given on the canvas is
held (`Constraint`) in the input; the sampler and the objective hold the estimates, of which one is the next
self-condition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.data.layouts.base import Canvas, Source
from noise2text.nn.embeddings import LazyLogits, TokenEmbedding

__all__ = [
    "ClampedDenoiser",
    "Constraint",
    "Denoiser",
    "DenoiserWrapper",
    "EncoderOutput",
    "Estimate",
    "NoiseLevel",
    "rows_per_chunk",
]

MAX_LOGITS = 1 << 28  # scores of tokens that are held at once


@dataclass(frozen=True)
class NoiseLevel:
    """The noise at some time: the signal's factor, the noise's, and the time that the network is told."""

    alpha: Tensor  # (B, 1 or L, 1)
    sigma: Tensor  # (B, 1 or L, 1)
    timestep: Tensor  # (B, 1 or L)
    time_embedding: Tensor | None = (
        None  # (B, 1 or L, W), what the network makes of the clock, if it has been asked
    )

    @property
    def snr(self) -> Tensor:
        """The signal-to-noise ratio α²/σ²."""
        return (self.alpha / self.sigma) ** 2


@dataclass(frozen=True)
class EncoderOutput:
    """What is kept of the sources, a row a sentence; its candidates share it."""

    states: Tensor  # (B, S, W)
    padding: Tensor  # (B, S)
    keys: Tensor  # (layers, B, heads, S, W / heads)
    values: Tensor  # (layers, B, heads, S, W / heads)


@dataclass(frozen=True)
class Constraint:
    """What is given on the canvas, a row a candidate."""

    given: Tensor  # (B, L, D), float32
    frozen: Tensor  # (B, L)
    padding: Tensor  # (B, L)

    def apply(self, x: Tensor) -> Tensor:
        """x with its frozen positions put back to what is given."""
        return torch.where(self.frozen[..., None], self.given.to(x.dtype), x)


@dataclass(frozen=True)
class Estimate:
    """The clean estimate, and the network's last states that it was made from."""

    z0: Tensor  # (B, L, D), float32
    hidden: Tensor  # (B, L, W)


def rows_per_chunk(estimate: Estimate, vocabulary: int) -> int:
    """The rows of an estimate whose scores there is room for at the same time."""
    return max(1, MAX_LOGITS // (estimate.z0.shape[1] * vocabulary))


class Denoiser(nn.Module, ABC):
    """Estimates z₀; the source is read once, the canvas at each step."""

    embedding: TokenEmbedding

    @abstractmethod
    def encode(self, source: Source) -> EncoderOutput:
        """What the steps need of the sources."""

    def constrain(self, canvas: Canvas) -> Constraint:
        """The canvas's given embeddings and masks."""
        return Constraint(self.embedding.embed(canvas.tokens).float(), canvas.frozen, canvas.padding)

    def time_embedder(self) -> nn.Module | None:
        """The part that sees nothing but the clock, if there is one."""
        return None

    def embed_timestep(self, timestep: Tensor) -> Tensor | None:
        """What the network makes of clocks (B, 1 or L), if it can say so beforehand."""
        time_embedder = self.time_embedder()
        return None if time_embedder is None else time_embedder(timestep)

    @abstractmethod
    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        """ẑ₀ for noisy z (B, L, D); `self_condition` is the previous estimate, none is zero."""

    def lazy_logits(self, estimate: Estimate) -> LazyLogits:
        """What every token scores at every position: the rounding of ẑ₀."""
        return self.embedding.lazy_logits(estimate.z0)

    def logits(self, estimate: Estimate) -> Tensor:
        """The scores as a tensor, (B, L, V)."""
        return self.lazy_logits(estimate).logits()


class DenoiserWrapper(Denoiser):
    """A denoiser around another, which reads, holds and rounds for it."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser, self.embedding = denoiser, denoiser.embedding

    def encode(self, source: Source) -> EncoderOutput:
        return self.denoiser.encode(source)

    def constrain(self, canvas: Canvas) -> Constraint:
        return self.denoiser.constrain(canvas)

    def time_embedder(self) -> nn.Module | None:
        return self.denoiser.time_embedder()

    def lazy_logits(self, estimate: Estimate) -> LazyLogits:
        return self.denoiser.lazy_logits(estimate)

    def logits(self, estimate: Estimate) -> Tensor:
        return self.denoiser.logits(estimate)


class ClampedDenoiser(DenoiserWrapper):
    """A denoiser whose estimate is moved to the nearest embedding (Diffusion-LM's clamping trick)."""

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        estimate: Estimate = self.denoiser(z, level, encoded, constraint, self_condition)
        nearest = self.embedding.embed(self.embedding.nearest(estimate.z0)).to(estimate.z0.dtype)
        return Estimate(nearest, estimate.hidden)
