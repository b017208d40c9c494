"""What the benchmarks measure with: times, FLOPs, peak memory, and random texts to work on."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.models import Model
from noise2text.models.accelerate import is_exported, list_linear_layers

__all__ = [
    "count_flops",
    "count_linear_flops",
    "make_random_texts",
    "measure_peak_flops",
    "measure_seconds",
    "ordinary_tokens",
    "read_peak_memory",
    "reset_peak_memory",
]


def measure_seconds(work: Callable[[], object], device: torch.device, *, repeats: int = 7) -> float:
    """The median time of `work`, after two warm-up runs."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def make_random_texts(model: Model, count: int, length: int) -> list[str]:
    """Random texts of about `length` tokens of the model's vocabulary."""
    rng = random.Random(0)
    length, tokens = min(length, model.max_source), ordinary_tokens(model)
    texts = model.tokenizer.decode([rng.choices(tokens, k=length) for _ in range(count)])
    if not all(texts):
        raise Problem("No random texts can be made from the vocabulary of this model: give --input.")
    return texts


def ordinary_tokens(model: Model) -> list[int]:
    """The tokens of the vocabulary that are not special."""
    return [token for token in range(len(model.tokenizer)) if token not in model.tokenizer.special_tokens]


def measure_peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """FLOPS of a product of two square matrices."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / measure_seconds(lambda: a @ b, device, repeats=5)


def count_flops(model: Model, call: Callable[[], object]) -> float:
    """The FLOPs of the products with weights in a call; 0 if onnxruntime computes them."""
    if is_exported(model):
        return 0.0
    with count_linear_flops(model) as total:
        call()
    return float(total[0])


@contextmanager
def count_linear_flops(model: Model) -> Iterator[list[int]]:
    """A running count of the FLOPs of the linear layers, without CUDA graphs, which bypass the hooks."""
    total = [0]

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        total[0] += 2 * inputs[0].shape[-1] * output.numel()

    hooks = [layer.register_forward_hook(count) for layer in list_linear_layers(model)]
    before, model.use_cuda_graphs = model.use_cuda_graphs, False
    try:
        yield total
    finally:
        for hook in hooks:
            hook.remove()
        model.use_cuda_graphs = before


def reset_peak_memory(device: torch.device) -> None:
    """Start to measure the peak memory of a GPU."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def read_peak_memory(device: torch.device) -> float:
    """The peak memory of a GPU in MiB; 0 for a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
