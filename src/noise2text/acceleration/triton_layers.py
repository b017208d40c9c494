"""Layers that generate faster on a GPU, by Triton kernels (`triton_generation.py`).

    add and norm   LayerNorm(x + y) as one kernel, which moves half of the memory that two move
    attention      one tile holds all keys if they are few; the kernel reads padding as bytes, not as a mask
    feed-forward   ReLU is applied where the product is written, instead of reading all of it again

A layer falls back to plain PyTorch outside GPU inference, or when dtype or shape do not fit the kernel. So an
accelerated model can still be moved to a CPU, or be trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.acceleration.class_swap import swap_classes
from noise2text.core.devices import has_triton
from noise2text.nn.attention import additive_mask
from noise2text.nn.layers import AddNorm, CrossAttention, FeedForward, LayerStack, SelfAttention

__all__ = ["accelerate_for_inference", "attend_by_bytes", "byte_mask"]

MAX_TILE_KEYS = 64  # keys that one tile of the attention kernel holds


def accelerate_for_inference(model: nn.Module) -> None:
    """Let the model's layers use the Triton kernels when it generates on a GPU; elsewhere nothing changes."""
    swap_classes(
        model,
        {
            AddNorm: InferenceAddNorm,
            SelfAttention: InferenceSelfAttention,
            CrossAttention: InferenceCrossAttention,
            FeedForward: InferenceFeedForward,
            LayerStack: InferenceLayerStack,
        },
    )


def is_gpu_inference(x: Tensor) -> bool:
    """Whether this tensor is on a GPU, in inference mode and outside autocast."""
    return x.is_cuda and torch.is_inference_mode_enabled() and not torch.is_autocast_enabled()


def is_half_precision(x: Tensor) -> bool:
    return x.dtype in (torch.bfloat16, torch.float16)


def byte_mask(padding: Tensor, like: Tensor) -> Tensor | None:
    """The padding (B, 1, 1, S) as bytes for the attention kernel; none where the kernel cannot be used.

    Bytes, because torch's attention reads booleans as the keys that are visible.
    """
    if (
        padding.shape[1] <= MAX_TILE_KEYS
        and is_half_precision(like)
        and is_gpu_inference(like)
        and has_triton()
    ):
        return padding.view(torch.uint8)[:, None, None, :]
    return None


def attend_by_bytes(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, otherwise: Callable[..., Tensor]
) -> Tensor:
    """The attention kernel's output (B, L, W) under a mask of bytes.

    Under another mask, or if the heads do not fit the kernel, it is that of the function `otherwise`.
    """
    if mask is None or mask.dtype != torch.uint8:
        return otherwise(queries, keys, values, mask)
    dim = queries.shape[-1]
    if not (16 <= dim <= 128 and dim.bit_count() == 1):
        return otherwise(queries, keys, values, additive_mask(mask.bool(), queries))
    from noise2text.acceleration.triton_generation import attend

    return attend(queries, keys, values, mask)


class InferenceAddNorm(AddNorm):
    """LayerNorm(x + y) as one kernel."""

    def forward(self, x: Tensor, y: Tensor, *input_bias: Tensor) -> Tensor:  # type: ignore[override]
        same_dtype_and_shape = x.dtype == y.dtype == self.weight.dtype and x.shape[1:] == y.shape[1:]
        if is_gpu_inference(x) and same_dtype_and_shape and not input_bias and has_triton():
            from noise2text.acceleration.triton_generation import add_norm

            return add_norm(x, y, self.weight, self.bias, self.eps)
        return super().forward(x, y, *input_bias)


class InferenceSelfAttention(SelfAttention):
    """Self-attention that also takes the mask of `byte_mask`."""

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        return attend_by_bytes(queries, keys, values, mask, otherwise=super().attend)


class InferenceCrossAttention(CrossAttention):
    """Cross-attention that also takes the mask of `byte_mask`."""

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        return attend_by_bytes(queries, keys, values, mask, otherwise=super().attend)


class InferenceFeedForward(FeedForward):
    """A feed-forward network whose ReLU is part of its first product."""

    def forward(self, x: Tensor, **options: Any) -> Tensor:  # type: ignore[override]
        first, activation, _, output_linear = self
        has_hooks = first._forward_hooks  # hooks run only if the layer is called
        if (
            is_gpu_inference(x)
            and isinstance(activation, nn.ReLU)
            and isinstance(first, nn.Linear)
            and not has_hooks
        ):
            hidden = torch._addmm_activation(first.bias, x.flatten(0, -2), first.weight.t())
            output: Tensor = output_linear(hidden.unflatten(0, x.shape[:-1]))
            return output
        return super().forward(x, **options)


class InferenceLayerStack(LayerStack):
    """Layers whose masks are bytes where the attention kernel reads them."""

    def padding_mask(self, padding: Tensor, like: Tensor) -> Tensor:
        mask = byte_mask(padding, like)
        return super().padding_mask(padding, like) if mask is None else mask
