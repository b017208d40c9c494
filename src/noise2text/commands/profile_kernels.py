"""The time that each kernel of the device takes, and each kind of kernel.

The name of a kernel shows its kind: libraries name kernels after the algorithm, the compiler after the
operations that it fused, torch after the functor. On a CPU, torch's operations take the place of kernels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["KERNEL_KINDS", "classify_kernel", "profile_kernels", "sum_by_kind"]

KERNEL_KINDS = {
    "attention": r"fmha|flash|attention|sdpa",
    "products": r"gemm|gemv|nvjet|cutlass|xmma|cublas|splitK|aten::(add|b|ba)?(mm|mv)\b",
    "vocabulary": r"_vocabulary|"
    r"arange_(\w+_)?eq_|softmax|SoftMax|nll_loss|scatter_gather|aten::(gather|scatter)",
    "norms": r"layer_norm|LayerNorm|_add_norm|GammaBeta|shift.*_ge_",
    "noise": r"cos|bitwise|shift",
    "activations": r"_activated|gelu|erf|Gelu|GELU|threshold|relu|tanh",
    "optimizer": r"multi_tensor|FusedAdam|_fused_adam|foreach|lpnorm",
    "embeddings": r"embedding|radix|RadixSort",
    "sums": r"_column_sums|reduce_kernel|aten::(sum|mean)\b|(?<!mix_order_)red_fused|per_fused",
    "copies": r"copy|Copy|Memcpy|Memset|aten::(cat|fill_|zero_)|CatArray|FillFunctor",
}
"""A regular expression for the names of each kind of kernel; the first match counts."""

OTHERS = "others"
_PATTERNS = {name: re.compile(pattern) for name, pattern in KERNEL_KINDS.items()}


def classify_kernel(kernel: str) -> str:
    """The kind of a kernel, by its name."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.search(kernel)), OTHERS)


def sum_by_kind(kernels: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each kind of kernel, the longest first."""
    sums: Counter[str] = Counter()
    for name, seconds in kernels.items():
        sums[classify_kernel(name)] += seconds  # type: ignore[assignment]
    return dict(sums.most_common())


def profile_kernels(work: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """The seconds that each kernel took during the work, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        work()
        if on_gpu:
            torch.cuda.synchronize(device)
    seconds_by_kernel = {
        event.key: (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e6
        for event in profiler.key_averages()
        if not (on_gpu and event.is_user_annotation)  # a span of time, not a kernel
    }
    return dict(sorted(seconds_by_kernel.items(), key=lambda item: -item[1]))
