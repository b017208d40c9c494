"""A denoiser always returns the clean estimate: ẑ₀ = f(z_t, noise level, source).

The sampler and the objective see this interface only, whatever a network predicts and whatever wraps it. The
source is encoded once per sentence (`EncoderOutput`). A denoiser puts given positions (`Constraint`) back
into its input; the sampler and the objective put them back into the estimates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
    "split_rows",
]

MAX_LOGITS = 1 << 28  # logits that are in memory at once


@dataclass(frozen=True)
class NoiseLevel:
    """How noisy z_t = α·z₀ + σ·ε is, and the timestep that the network reads; a `Schedule` returns one.

    Fields:
        alpha: (B, 1 or L, 1), the factor of the signal.
        sigma: (B, 1 or L, 1), the factor of the noise.
        timestep: (B, 1 or L), in [0, 1]: the papers' index of a step, divided by their number of steps T.
        time_embedding: (B, 1 or L, W), the network's embedding of the timestep, if computed in advance.

    >>> import torch
    >>> from noise2text import NoiseLevel
    >>> level = NoiseLevel(torch.tensor([[[0.8]]]), torch.tensor([[[0.6]]]), timestep=torch.tensor([[0.5]]))
    >>> level.add_noise(torch.ones(1, 1, 2), noise=torch.tensor([[[0.0, -1.0]]]))
    tensor([[[0.8000, 0.2000]]])
    """

    alpha: Tensor  # (B, 1 or L, 1)
    sigma: Tensor  # (B, 1 or L, 1)
    timestep: Tensor  # (B, 1 or L), in [0, 1]
    time_embedding: Tensor | None = None  # (B, 1 or L, W), of the timestep, if computed in advance

    @property
    def snr(self) -> Tensor:
        """The signal-to-noise ratio α²/σ²."""
        return (self.alpha / self.sigma) ** 2

    def select(self, rows: Tensor | slice) -> NoiseLevel:
        """The levels of these rows; a single row stands for all rows."""

        def own(value: Tensor) -> Tensor:
            return value if len(value) == 1 else value[rows]

        time_embedding = None if self.time_embedding is None else own(self.time_embedding)
        return NoiseLevel(own(self.alpha), own(self.sigma), own(self.timestep), time_embedding)

    def embed_time(self, time_embedding: Callable[[Tensor], Tensor]) -> Tensor:
        """The embedded timestep (B, 1 or L, W), by this module unless it was computed in advance."""
        return time_embedding(self.timestep) if self.time_embedding is None else self.time_embedding

    def add_noise(self, z0: Tensor, noise: Tensor) -> Tensor:
        """z_t = α·z₀ + σ·ε, in the precision of z₀ (B, L, D)."""
        return self.alpha.to(z0.dtype) * z0 + self.sigma.to(z0.dtype) * noise


@dataclass(frozen=True)
class EncoderOutput:
    """The encoded sources, one row per sentence; the candidates of a sentence share it."""

    states: Tensor  # (B, S, W)
    padding: Tensor  # (B, S)
    keys: Tensor  # (layers, B, heads, S, W / heads)
    values: Tensor  # (layers, B, heads, S, W / heads)

    def mean_state(self) -> Tensor:
        """The mean state of each source (B, W), without padding."""
        visible = ~self.padding[..., None]
        return (self.states * visible).sum(1) / visible.sum(1)

    def select(self, rows: Tensor) -> EncoderOutput:
        """The encodings of these rows; states, keys and values are empty if the source is on the canvas."""
        rows = rows.to(self.padding.device)
        states, keys, values = self.states, self.keys, self.values
        return EncoderOutput(
            states[rows] if states.numel() else states,
            self.padding[rows],
            keys[:, rows] if keys.numel() else keys,
            values[:, rows] if values.numel() else values,
        )


@dataclass(frozen=True)
class Constraint:
    """The given positions of the canvas, one row per candidate."""

    embeddings: Tensor  # (B, L, D), float32, of every token; `apply` puts those of given positions back
    given: Tensor  # (B, L), the mask of the given positions
    padding: Tensor  # (B, L)

    @classmethod
    def join(cls, parts: Sequence[Constraint]) -> Constraint:
        """The rows of all parts."""
        names = ("embeddings", "given", "padding")
        return Constraint(*(torch.cat([getattr(each, name) for each in parts]) for name in names))

    def select(self, rows: Tensor) -> Constraint:
        """These rows."""
        rows = rows.to(self.padding.device)
        return Constraint(self.embeddings[rows], self.given[rows], self.padding[rows])

    def apply(self, x: Tensor) -> Tensor:
        """x with the embeddings of the tokens at the given positions."""
        return torch.where(self.given[..., None], self.embeddings.to(x.dtype), x)


@dataclass(frozen=True)
class Estimate:
    """The clean estimate, and the last hidden states that it was computed from; a `Denoiser` returns one.

    Fields:
        z0: (B, L, D), float32, ẑ₀ at every position.
        hidden: (B, L, W), from which some networks compute their logits.

    >>> import torch
    >>> from noise2text import Estimate
    >>> z0 = torch.arange(6.0).view(3, 1, 2)
    >>> Estimate(z0, hidden=z0).select(torch.tensor([2])).z0
    tensor([[[4., 5.]]])
    """

    z0: Tensor  # (B, L, D), float32
    hidden: Tensor  # (B, L, W)

    def select(self, rows: Tensor) -> Estimate:
        """These rows."""
        return Estimate(self.z0[rows], self.hidden[rows])

    def put(self, rows: Tensor, values: Estimate) -> Estimate:
        """This estimate with other values in these rows."""
        return Estimate(
            self.z0.index_copy(0, rows, values.z0), self.hidden.index_copy(0, rows, values.hidden)
        )


def split_rows(estimate: Estimate, values: Tensor, *, vocabulary: int) -> Iterator[tuple[Estimate, Tensor]]:
    """The rows of an estimate, with their values, in parts whose logits can be in memory at once."""
    size = max(1, MAX_LOGITS // (estimate.z0.shape[1] * vocabulary))
    parts = (each.split(size) for each in (estimate.z0, estimate.hidden, values))
    for z0, hidden, own_values in zip(*parts, strict=True):
        yield Estimate(z0, hidden), own_values


class Denoiser(nn.Module, ABC):
    """A network that estimates z₀: it encodes the source once, and reads the noisy canvas at each step.

    A denoiser has an `embedding`, encodes sources (`encode`) and returns an `Estimate` (`forward`). One that
    extends another is a `DenoiserWrapper`.

    >>> import torch
    >>> from noise2text import Denoiser
    >>> from noise2text.nn.denoiser import Estimate, NoiseLevel
    >>> class WienerFilter(Denoiser):  # the best linear estimate for embeddings of unit variance
    ...     def encode(self, source):
    ...         return None  # it does not read the source
    ...     def forward(self, z, level, encoded, constraint, self_condition):
    ...         z0 = z * level.alpha / (level.alpha**2 + level.sigma**2)
    ...         return Estimate(z0, hidden=z0)
    >>> level = NoiseLevel(torch.tensor([[[0.6]]]), torch.tensor([[[0.8]]]), timestep=torch.tensor([[0.5]]))
    >>> WienerFilter()(torch.ones(1, 1, 2), level, None, None, None).z0
    tensor([[[0.6000, 0.6000]]])
    """

    embedding: TokenEmbedding
    needs_one_timestep = False  # whether all rows of a batch must have the same timestep

    @abstractmethod
    def encode(self, source: Source) -> EncoderOutput:
        """The encoded sources."""

    def constrain(self, canvas: Canvas) -> Constraint:
        """The embeddings of the canvas, which of them are given, and its padding."""
        return Constraint(self.embedding.embed(canvas.tokens).float(), canvas.given, canvas.padding)

    def for_sampling(self, schedule: Any) -> Denoiser:
        """This denoiser for noise of the given schedule, which may be another than that of training."""
        return self

    def time_embedder(self) -> nn.Module | None:
        """The module that embeds the timestep alone, if there is one."""
        return None

    @abstractmethod
    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        """ẑ₀ for noisy z (B, L, D); `self_condition` is the previous estimate; None stands for zeros."""

    def lazy_logits(self, estimate: Estimate) -> LazyLogits:
        """The logits of every token at every position, which round ẑ₀; not yet computed."""
        return self.embedding.lazy_logits(estimate.z0)

    def logits(self, estimate: Estimate) -> Tensor:
        """The logits of every token at every position, (B, L, V)."""
        return self.lazy_logits(estimate).logits()


class DenoiserWrapper(Denoiser):
    """A denoiser around another, which encodes, constrains and rounds for it."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser, self.embedding = denoiser, denoiser.embedding
        self.needs_one_timestep = denoiser.needs_one_timestep

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
    """A denoiser that moves estimates to the nearest embedding (Diffusion-LM's clamping trick)."""

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
