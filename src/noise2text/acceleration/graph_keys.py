"""Cache keys of CUDA graphs: which network, which schedule, in which state."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Protocol

from torch import Tensor, nn

from noise2text.data.layouts.base import Source
from noise2text.nn.denoiser import Denoiser, EncoderOutput
from noise2text.nn.embeddings import TokenEmbedding

__all__ = ["SourceEncoder", "denoiser_key", "key_of", "schedule_key", "time_embedder_version"]


class SourceEncoder(Protocol):
    """A denoiser or an autoregressive network: both encode sources."""

    embedding: TokenEmbedding

    def encode(self, source: Source) -> EncoderOutput:
        """The encoded sources."""


def key_of(part: Hashable) -> Hashable:
    """The key of a part of a graph's cache key: networks and schedules are identified by their tensors."""
    if isinstance(part, nn.Module):
        return denoiser_key(part) if hasattr(part, "encode") else tuple(schedule_key(part))  # type: ignore[arg-type]
    return part


def denoiser_key(denoiser: SourceEncoder) -> Hashable:
    """Identifies a denoiser or network: its wrappers with their numbers, and the innermost weights."""
    inner = getattr(denoiser, "denoiser", None)
    if isinstance(inner, Denoiser):
        plain = (item for item in vars(denoiser).items() if isinstance(item[1], int | float | str))
        return type(denoiser), tuple(plain), denoiser_key(inner)
    return id(denoiser), denoiser.embedding.weight.data_ptr()


def time_embedder_version(denoiser: Denoiser) -> Hashable:
    """Changes when the time embedder's weights do: a graph reads them anew, a cached step table does not."""
    time_embedder = denoiser.time_embedder()
    return () if time_embedder is None else tuple(map(_version, time_embedder.parameters()))


def _version(tensor: Tensor) -> Hashable:
    """How often a tensor was changed in place; tensors of inference mode do not count it."""
    return object() if tensor.is_inference() else tensor._version


def schedule_key(schedule: nn.Module) -> Sequence[Hashable]:
    """Identifies a schedule: its numbers, the memory of its tables and how often these were changed."""
    own = chain(schedule.parameters(recurse=False), schedule.buffers(recurse=False))
    tables = [(t.data_ptr(), _version(t)) for t in own]
    plain = (item for item in vars(schedule).items() if isinstance(item[1], int | float | str))
    return [
        type(schedule).__qualname__,
        *plain,
        *tables,
        *chain.from_iterable(map(schedule_key, schedule.children())),
    ]
