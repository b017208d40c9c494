"""The few lines by which models call `noise2text.acceleration`; without that folder they do nothing.

Every function falls back to plain PyTorch when the folder cannot be imported. What cannot do without it, such
as an export, raises the Problem of `missing_acceleration`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from noise2text.core.errors import Problem
from noise2text.generation.decoder import Stage
from noise2text.generation.executor import EAGER, Executor

__all__ = [
    "is_exported",
    "is_quantized",
    "list_linear_layers",
    "make_batch_invariant_on_cpu",
    "make_cuda_graph_executor",
    "missing_acceleration",
    "prepare_for_inference",
    "run_stages",
]


def missing_acceleration(what: str) -> Problem:
    """The Problem of something that needs the folder, such as "An export"."""
    return Problem(f"{what} needs noise2text.acceleration, which is missing here.")


def prepare_for_inference(
    model: nn.Module, quantizable: nn.Module | None, precision: str, device: torch.device
) -> None:
    """Let a GPU use the Triton kernels, and a CPU int8 layers where the precision asks for them."""
    try:
        from noise2text.acceleration.int8 import quantize_if_asked
        from noise2text.acceleration.triton_layers import accelerate_for_inference
    except ImportError as error:
        if precision == "int8":
            raise missing_acceleration("The precision int8") from error
        return
    if device.type == "cuda":
        accelerate_for_inference(model)
    quantize_if_asked(quantizable, precision, device)


def make_batch_invariant_on_cpu(model: nn.Module, device: torch.device) -> None:
    """Let a CPU give each text the same scores, to the bit, in every batch; elsewhere nothing changes."""
    try:
        from noise2text.acceleration.batch_invariance import make_batch_invariant
    except ImportError:
        return
    if device.type == "cpu":
        make_batch_invariant(model)


def list_linear_layers(model: nn.Module) -> list[nn.Module]:
    """The model's layers that multiply by a matrix of weights, those in int8 included."""
    kinds: tuple[type[nn.Module], ...] = (nn.Linear,)
    try:
        from noise2text.acceleration.int8 import Int8Linear
    except ImportError:
        pass
    else:
        kinds = (nn.Linear, Int8Linear)
    return [module for module in model.modules() if isinstance(module, kinds)]


def is_exported(model: nn.Module) -> bool:
    """Whether onnxruntime computes the model's network."""
    try:
        from noise2text.acceleration.onnx_runtime import OnnxDenoiser
    except ImportError:
        return False
    return any(isinstance(module, OnnxDenoiser) for module in model.modules())


def is_quantized(model: nn.Module) -> bool:
    """Whether some of the model's layers were rounded to int8."""
    try:
        from noise2text.acceleration.int8 import Int8Linear
    except ImportError:
        return False
    return any(isinstance(module, Int8Linear) for module in model.modules())


def make_cuda_graph_executor() -> Executor:
    """An executor that captures the steps of generation as CUDA graphs and replays them."""
    try:
        from noise2text.acceleration.cuda_graphs import CudaGraphExecutor
    except ImportError:
        return EAGER
    return CudaGraphExecutor()


def run_stages(batches: Iterable[Any], stages: Sequence[Stage], device: torch.device) -> Iterable[Any]:
    """What the last stage returns for every batch; on a GPU the host goes on while the device works."""
    if device.type == "cuda":
        try:
            from noise2text.acceleration.overlap import overlap
        except ImportError:
            pass
        else:
            return overlap(batches, stages)
    for stage in stages:
        batches = map(stage, batches)
    return batches
