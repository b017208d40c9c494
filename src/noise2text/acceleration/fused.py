"""Layers that train faster on a GPU: memory-bound operations are compiled, and short rows are packed.

`fuse` replaces the plain layers of an objective by those here, which do the same as the plain ones in
evaluation. The operations themselves are in `fused_functions.py`, packing is in `packing.py`.

Adding the last bias of a sublayer costs nothing in the norm that follows. So on a GPU a sublayer leaves it
out (`add_bias=False`) and its norm adds it (`input_bias`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from noise2text.acceleration import fused_functions as functions
from noise2text.acceleration.class_swap import swap_classes
from noise2text.acceleration.packing import pack_short_rows
from noise2text.nn.attention import split_heads
from noise2text.nn.layers import (
    AddNorm,
    CrossAttention,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    SelfAttention,
)

__all__ = [
    "FusedAddNorm",
    "FusedCrossAttention",
    "FusedDecoderLayer",
    "FusedEncoderLayer",
    "FusedFeedForward",
    "FusedSelfAttention",
    "fuse",
    "fuse_layers",
]


def fuse(objective: nn.Module) -> None:
    """Let an objective train by fused layers, losses and noise, and by short rows side by side."""
    fuse_layers(objective)
    pack_short_rows(objective)
    replacements = {"training_token_nll": functions.token_nll, "training_normal": functions.normal}
    for part in objective.modules():
        for name, function in replacements.items():
            if hasattr(part, name):  # an objective, perhaps within another
                setattr(part, name, function)


def fuse_layers(root: nn.Module) -> None:
    """Replace the plain layers within the root by fused ones."""
    swap_classes(
        root,
        {
            AddNorm: FusedAddNorm,
            SelfAttention: FusedSelfAttention,
            CrossAttention: FusedCrossAttention,
            FeedForward: FusedFeedForward,
            EncoderLayer: FusedEncoderLayer,
            DecoderLayer: FusedDecoderLayer,
        },
    )


class FusedAddNorm(AddNorm):
    """LayerNorm(x + dropout(y + input_bias)), compiled or as one kernel under autocast."""

    def forward(self, x: Tensor, y: Tensor, input_bias: Tensor | None = None) -> Tensor:  # type: ignore[override]
        if self.training and torch.is_autocast_enabled(x.device.type):
            return functions.add_norm(
                x,
                y,
                self.weight,
                self.bias,
                eps=self.eps,
                dropout_rate=self.dropout_rate,
                input_bias=input_bias,
            )
        return super().forward(x, y if input_bias is None else y + input_bias)


class FusedSelfAttention(SelfAttention):
    """Self-attention whose products have a fused gradient."""

    def forward(self, x: Tensor, mask: Tensor | None, *, add_bias: bool = True) -> Tensor:
        queries, keys, values = (split_heads(part, self.heads) for part in self._project_qkv(x))
        attended = self.attend(queries, keys, values, mask)
        return _apply_linear(self.output_projection, attended, add_bias=add_bias)

    def _project_qkv(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (B, L, W)."""
        projection = self.qkv_projection
        if projection.training and isinstance(projection, nn.Linear):
            return functions.linear_qkv(x, projection.weight, projection.bias)
        projected: Tensor = projection(x)
        return projected.chunk(3, dim=-1)


class FusedCrossAttention(CrossAttention):
    """Cross-attention whose products have a fused gradient."""

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, add_bias: bool = True
    ) -> Tensor:
        attended = self.attend_to_source(_apply_linear(self.query_projection, x), keys, values, mask)
        return _apply_linear(self.output_projection, attended, add_bias=add_bias)


class FusedFeedForward(FeedForward):
    """A feed-forward network whose activation adds the bias of the product before it."""

    def forward(self, x: Tensor, *, add_bias: bool = True) -> Tensor:
        first, activation, _, output_linear = self
        if not self.training:
            assert add_bias
            return super().forward(x)
        input_bias = functions.deferred_bias(first, x) if functions.has_kernel(activation) else None
        product = _apply_linear(first, x, add_bias=input_bias is None)
        hidden = functions.bias_activation(activation, product, input_bias)
        return _apply_linear(output_linear, hidden, add_bias=add_bias)


class FusedEncoderLayer(EncoderLayer):
    """An encoder layer whose norms add the biases of its sublayers."""

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = _add_and_norm(self.self_attention_norm, x, self.self_attention, mask)
        return _add_and_norm(self.feed_forward_norm, x, self.feed_forward)


class FusedDecoderLayer(DecoderLayer):
    """A decoder layer whose norms add the biases of its sublayers."""

    def forward(
        self, x: Tensor, mask: Tensor | None, keys: Tensor, values: Tensor, source_mask: Tensor
    ) -> Tensor:
        x = _add_and_norm(self.self_attention_norm, x, self.self_attention, mask)
        x = _add_and_norm(self.cross_attention_norm, x, self.cross_attention, keys, values, source_mask)
        return _add_and_norm(self.feed_forward_norm, x, self.feed_forward)


def _add_and_norm(norm: nn.Module, x: Tensor, sublayer: nn.Module, *inputs: Any) -> Tensor:
    """LayerNorm(x + dropout(sublayer(x, …))); where it can, the norm adds the sublayer's last bias."""
    output: Tensor
    if norm.training and not sublayer._forward_hooks and x.shape[-1] <= functions.MAX_NORM_WIDTH:
        input_bias = functions.deferred_bias(_output_linear(sublayer), x)
        if input_bias is not None:
            output = norm(x, sublayer(x, *inputs, add_bias=False), input_bias)
            return output
    output = norm(x, sublayer(x, *inputs))
    return output


def _output_linear(sublayer: nn.Module) -> nn.Module:
    """The linear layer that a sublayer ends with."""
    if isinstance(sublayer, FeedForward):
        return sublayer[-1]
    assert isinstance(sublayer, SelfAttention | CrossAttention)
    return sublayer.output_projection


def _apply_linear(linear: nn.Module, x: Tensor, *, add_bias: bool = True) -> Tensor:
    """A linear layer's output for x; without its bias if what follows adds that (`deferred_bias`)."""
    if linear.training and isinstance(linear, nn.Linear):
        return functions.linear(x, linear.weight, linear.bias if add_bias else None)
    assert add_bias
    output: Tensor = linear(x)
    return output
