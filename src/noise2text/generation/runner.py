"""How a decoder runs its network: operation by operation, or as something faster of the same interface.

`EagerRunner` runs everywhere. On a GPU a model uses `acceleration.cuda_graphs.GraphCache`, which records
the same functions once for each shape and replays them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

from noise2text.data.layouts.base import Source
from noise2text.diffusion.sampler import Guide, OnStep, sample, unguided
from noise2text.diffusion.solvers import ANCESTRAL, Solver
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate

__all__ = ["EAGER", "EagerRunner", "Runner"]

T = TypeVar("T")


class Runner(Protocol):
    """Encodes sources, samples, and calls functions of tensors."""

    def encode(self, network: Any, source: Source) -> EncoderOutput:
        """What the network's encoder makes of the sources."""

    def sample(
        self,
        denoiser: Denoiser,
        schedule: nn.Module,
        encoded: EncoderOutput,
        constraint: Constraint,
        keys: Tensor,
        times: Tensor,
        *,
        solver: Solver = ANCESTRAL,
        guide: Guide = unguided,
        on_step: OnStep | None = None,
    ) -> Estimate:
        """What `diffusion.sampler.sample` returns."""

    def run(self, name: tuple[Hashable, ...], function: Callable[[Any], T], inputs: Any) -> T:
        """What a function makes of a dataclass or tuple of tensors; the name says which function it is."""

    def decoding_state(
        self, name: tuple[Hashable, ...], make: Callable[[EncoderOutput], T], encoded: EncoderOutput
    ) -> T:
        """The state of autoregressive decoding that `make` returns for encoded sources."""

    def pad_batch(self, sentences: int) -> int:
        """How many rows a batch of this many sentences is filled up to."""

    def pad_length(self, length: int, max_length: int) -> int:
        """How many positions rows of this length are filled up to."""


class EagerRunner:
    """Runs one operation after another and fills nothing up."""

    sample = staticmethod(sample)

    def encode(self, network: Any, source: Source) -> EncoderOutput:
        encoded: EncoderOutput = network.encode(source)
        return encoded

    def run(self, name: tuple[Hashable, ...], function: Callable[[Any], T], inputs: Any) -> T:
        return function(inputs)

    def decoding_state(
        self, name: tuple[Hashable, ...], make: Callable[[EncoderOutput], T], encoded: EncoderOutput
    ) -> T:
        return make(encoded)

    def pad_batch(self, sentences: int) -> int:
        return sentences

    def pad_length(self, length: int, max_length: int) -> int:
        return length


EAGER = EagerRunner()
