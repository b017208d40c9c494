"""Counter-based random numbers: noise depends on what it is for, not on when it is drawn.

Every number is a hash of a key and a counter: the key names the sentence and the candidate, the counter the
step, the position and the channel. So neither the batch nor the padding nor the order of work changes it,
a resumed run needs no generator state, and a CUDA graph can replay it. The hash is SplitMix64 (Steele et
al., 2014), Box–Muller turns its bits into Gaussians, both with plain tensor operations on any device. Keys
on the host are computed with numpy, which wraps around as torch does and is faster for few numbers.

The keys of candidates are made in generation/parallel.py and, for samples of autoregressive models, in
generation/config.py; those of training in training/loop.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "KeyPurpose",
    "NormalSampler",
    "RowKeyPurpose",
    "SamplingKeyPurpose",
    "box_muller",
    "channel_offsets",
    "gaussian_noise",
    "make_key",
    "normal",
    "seed_tensor",
    "uniform",
]

NormalSampler = Callable[[Tensor, int], Tensor]
"""A function from the keys of positions to standard normal numbers, such as `normal`."""


class KeyPurpose(IntEnum):
    """What the keys of a training run are for: `make_key(seed, purpose, step, …)`."""

    TRAINING = 1
    DROPOUT = 2
    VALIDATION = 3
    LAYOUT = 4


class RowKeyPurpose(IntEnum):
    """What the key of a training pair decides: `make_key(key, purpose)`, or the `step` of its noise."""

    TIME = 0
    NOISE = 1
    Z0_NOISE = 2
    SOURCE_DROPOUT = 3
    SELF_CONDITION_NOISE = 4


class SamplingKeyPurpose(IntEnum):
    """What the keys of generation are for, next to noise; generation has a seed of its own."""

    PRIOR_SAMPLING = 1


Bits = TypeVar("Bits", Tensor, NDArray[np.int64])


def _to_signed(number: int) -> int:
    """The same 64 bits as a signed integer, wrapped."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


_GOLDEN = _to_signed(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = _to_signed(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = _to_signed(0x94D049BB133111EB)


def _shift_right(bits: Bits, by: int) -> Bits:
    """A logical shift to the right of signed integers."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mix(bits: Bits) -> Bits:
    """SplitMix64's finaliser: every bit of the result depends on every bit of the input."""
    bits = (bits ^ _shift_right(bits, 30)) * _MULTIPLIER_1
    bits = (bits ^ _shift_right(bits, 27)) * _MULTIPLIER_2
    return bits ^ _shift_right(bits, 31)


def make_key(*parts: int | Tensor) -> Tensor:
    """A 64-bit key for each tuple of integers; the parts are broadcast together."""
    device = next((part.device for part in parts if isinstance(part, Tensor)), torch.device("cpu"))
    if device.type != "cpu":
        device_parts = [
            part if isinstance(part, Tensor) else _scalar_on_device(_to_signed(part), device)
            for part in parts
        ]
        return _fold(torch.zeros((), dtype=torch.long, device=device), device_parts)
    host_parts = [part.numpy() if isinstance(part, Tensor) else np.array(_to_signed(part)) for part in parts]
    with np.errstate(over="ignore"):  # numpy warns when a scalar wraps around
        return torch.from_numpy(np.asarray(_fold(np.zeros((), np.int64), host_parts)))


def seed_tensor(seeds: Sequence[int]) -> Tensor:
    """Seeds of any size as a tensor (B,), from which `make_key` makes the same keys as from each of them."""
    return torch.tensor([_to_signed(seed) for seed in seeds])


def _fold(bits: Bits, parts: Sequence[Bits]) -> Bits:
    """The bits with every part mixed in, one after the other."""
    for part in parts:
        bits = _mix((bits ^ _mix(part + _GOLDEN)) + _GOLDEN)
    return bits


def _scalar_on_device(number: int, device: torch.device) -> Tensor:
    """The number on the device, without a copy from the host, which CUDA graph capture would refuse."""
    return torch.full((), number, dtype=torch.long, device=device)


def uniform(keys: Tensor) -> Tensor:
    """A number in [0, 1) for each key, in float64."""
    return _shift_right(_mix(keys + _GOLDEN), 11).double() / (1 << 53)


def normal(keys: Tensor, dim: int) -> Tensor:
    """Standard normal numbers for each key, (…, dim), in float32."""
    return box_muller(keys, channel_offsets(dim, keys.device))[..., :dim]


def channel_offsets(dim: int, device: torch.device) -> Tensor:
    """The offset that each pair of channels adds to a position's key, (⌈dim / 2⌉,)."""
    return torch.arange((dim + 1) // 2, device=device) * _GOLDEN


def box_muller(keys: Tensor, offsets: Tensor) -> Tensor:
    """Two standard normal numbers for each key (…) and channel (C), (…, 2·C), by Box–Muller."""
    bits = _mix(keys[..., None] + offsets)
    radius = torch.sqrt(-2 * torch.log((_shift_right(bits, 40) + 1).float() * 2.0**-24))
    angle = (_shift_right(bits, 16) & 0xFFFFFF).float() * (2 * math.pi * 2.0**-24)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1).flatten(-2)


def gaussian_noise(
    keys: Tensor, step: int | Tensor, length: int, dim: int, *, normal_sampler: NormalSampler = normal
) -> Tensor:
    """Standard normal noise (B, length, dim) in float32; that of a position does not depend on the length.

    Steps of shape (K, 1) give (K, B, length, dim).
    """
    number = step if isinstance(step, Tensor) else _scalar_on_device(step, keys.device)
    start = _mix(keys ^ _mix(number * _MULTIPLIER_1 + _GOLDEN))  # (…, B)
    positions = (torch.arange(length, device=keys.device) << 32) * _GOLDEN  # room for 2³² channels
    return normal_sampler(start[..., None] + positions, dim)
