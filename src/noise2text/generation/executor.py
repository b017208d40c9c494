"""How a decoder runs its network: operation by operation, or by CUDA graphs through the same interface.

`EagerExecutor` runs everywhere. On a GPU a model uses `acceleration.cuda_graphs.CudaGraphExecutor`, which
captures the same functions once for each shape and replays them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from noise2text.data.layouts.base import Source
from noise2text.diffusion.sampler import OnStep, ReverseProcess, sample
from noise2text.nn.denoiser import EncoderOutput, Estimate

__all__ = ["EAGER", "EagerExecutor", "Executor"]

T = TypeVar("T")


class Executor(Protocol):
    """Encodes sources, samples, and calls functions of tensors."""

    needs_fixed_shapes: bool  # whether all steps of a run must have the same rows

    def encode(self, network: Any, source: Source) -> EncoderOutput:
        """The sources, encoded by the network."""

    def sample(self, process: ReverseProcess, on_step: OnStep | None = None) -> Estimate:
        """What `diffusion.sampler.sample` returns."""

    def run(self, cache_key: tuple[Hashable, ...], function: Callable[[Any], T], inputs: Any) -> T:
        """What the function returns for a dataclass or tuple of tensors; the key identifies the function."""

    def prepare_decoding_state(
        self, cache_key: tuple[Hashable, ...], make: Callable[[EncoderOutput], T], encoded: EncoderOutput
    ) -> T:
        """The state of autoregressive decoding that `make` returns for encoded sources."""

    def padded_shape(self, rows: int, length: int, max_length: int) -> tuple[int, int]:
        """The rows and the length (positions per row) that a batch is padded to."""


class EagerExecutor:
    """Runs one operation after another, without padding."""

    needs_fixed_shapes = False
    sample = staticmethod(sample)

    def encode(self, network: Any, source: Source) -> EncoderOutput:
        encoded: EncoderOutput = network.encode(source)
        return encoded

    def run(self, cache_key: tuple[Hashable, ...], function: Callable[[Any], T], inputs: Any) -> T:
        return function(inputs)

    def prepare_decoding_state(
        self, cache_key: tuple[Hashable, ...], make: Callable[[EncoderOutput], T], encoded: EncoderOutput
    ) -> T:
        return make(encoded)

    def padded_shape(self, rows: int, length: int, max_length: int) -> tuple[int, int]:
        return rows, length


EAGER = EagerExecutor()
