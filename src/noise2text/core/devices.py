"""Devices: find one by name, choose a precision for it, copy tensors to it and back."""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noise2text.core.errors import Problem, abbreviate

__all__ = [
    "HostCopy",
    "allow_fork",
    "allow_tf32",
    "autocast",
    "copy_to_device",
    "copy_to_host",
    "device_guard",
    "find_device",
    "find_dtype",
    "has_triton",
]

MAX_UNPINNED_BYTES = 1 << 16


@functools.cache
def allow_fork() -> None:
    """Let forked processes compute with one thread: OpenMP would wait for others, which they lack."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Context manager: matrix products are computed in this precision; the weights keep theirs."""
    dtype = find_dtype(precision, device)
    if dtype == torch.float32:
        return nullcontext()
    # No cache: self-conditioning runs without gradients first, and its cast weights must not be reused.
    return torch.autocast(device.type, dtype, cache_enabled=False)


@functools.cache
def has_triton() -> bool:
    """Whether our Triton kernels can be compiled; torch's CUDA builds for Linux include Triton."""
    return importlib.util.find_spec("triton") is not None


@contextmanager
def allow_tf32(weights: Tensor) -> Iterator[None]:
    """Context manager: a GPU may use TF32 for float32 products, if the weights are 16-bit floats."""
    previous = torch.get_float32_matmul_precision()
    if weights.is_cuda and weights.dtype in (torch.bfloat16, torch.float16):
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous)


def copy_to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device, copied asynchronously: neither the host nor the device waits.

    CUDA copies up to 64 KiB from any memory without waiting; larger tensors are pinned first.
    """
    large = tensor.nbytes > MAX_UNPINNED_BYTES
    if large and tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@dataclass(frozen=True)
class HostCopy:
    """A tensor on its way to the host."""

    tensor: Tensor
    arrival: torch.cuda.Event | None  # None if it is there already

    def wait(self) -> Tensor:
        """The tensor, once it is there."""
        if self.arrival is not None:
            self.arrival.synchronize()
        return self.tensor


def copy_to_host(tensor: Tensor) -> HostCopy:
    """A copy of the tensor on the host, for which the host waits only when it reads it."""
    if tensor.device.type != "cuda":
        return HostCopy(tensor.cpu(), None)
    copy = tensor.to("cpu", non_blocking=True)
    arrival = torch.cuda.Event()
    arrival.record(torch.cuda.current_stream(tensor.device))
    return HostCopy(copy, arrival)


def find_device(name: str | torch.device | None) -> torch.device:
    """The named device; without a name, the GPU if there is one."""
    try:
        default = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.device(default if name is None else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError) as error:
        raise Problem(
            f"There is no device {abbreviate(name)} here; leave it out to use the default."
        ) from error
    return device


def find_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The type of the weights: float32, bfloat16, or auto (bfloat16 on a GPU); int8 starts from float32."""
    if not isinstance(precision, str) or precision not in _DTYPES:
        raise Problem(f"The precision is one of {', '.join(_DTYPES)}, not {abbreviate(precision)}.")
    return _DTYPES[precision](device)


_DTYPES: dict[str, Callable[[torch.device], torch.dtype]] = {
    "auto": lambda device: torch.bfloat16 if device.type == "cuda" else torch.float32,
    "float32": lambda device: torch.float32,
    "bfloat16": lambda device: torch.bfloat16,
    "int8": lambda device: torch.float32,
}


_GPU_LOCK = threading.RLock()


@contextmanager
def device_guard(device: torch.device) -> Iterator[None]:
    """Context manager: events, streams and kernels are those of this device, not of the first GPU.

    One thread at a time uses a GPU; the others wait. While a CUDA graph is captured, a call of any other
    thread would break it, and threads that share a model share the memory of its graphs.
    """
    if device.type != "cuda":
        yield
        return
    with _GPU_LOCK, torch.cuda.device(device):
        yield
