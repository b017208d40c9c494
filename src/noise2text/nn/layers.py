"""The transformer's parts, post-norm as in Vaswani et al. (2017): x ← LayerNorm(x + f(x))."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from noise2text.core.devices import has_triton
from noise2text.nn.attention import attend, is_gpu_inference, padding_mask, split_heads

__all__ = [
    "AddNorm",
    "CrossAttention",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "LayerStack",
    "SelfAttention",
    "TimeEmbedding",
    "add_and_norm",
    "init_weights",
]


class AddNorm(nn.LayerNorm):
    """LayerNorm(x + dropout(y + shift)): how every part of a layer ends; y may be the same for all rows.

    The shift is the bias of the product that y is, where that was left to its norm (`add_and_norm`).
    """

    def __init__(self, model_dim: int, dropout: float) -> None:
        super().__init__(model_dim)
        self.dropout_rate = dropout
        self.fused = False  # whether training compiles it (`training/passes.py`)

    def forward(self, x: Tensor, y: Tensor, input_bias: Tensor | None = None) -> Tensor:  # type: ignore[override]
        same_dtype_and_shape = x.dtype == y.dtype == self.weight.dtype and x.shape[1:] == y.shape[1:]
        if is_gpu_inference(x) and same_dtype_and_shape and input_bias is None and has_triton():
            from noise2text.acceleration.triton_generation import add_norm

            return add_norm(x, y, self.weight, self.bias, self.eps)
        if self.fused and self.training and torch.is_autocast_enabled(x.device.type):
            from noise2text.acceleration.fused import add_norm as fused

            return fused(
                x,
                y,
                self.weight,
                self.bias,
                eps=self.eps,
                dropout_rate=self.dropout_rate,
                input_bias=input_bias,
            )
        y = y if input_bias is None else y + input_bias
        return super().forward(x + dropout(y, self.dropout_rate, self.training))


def apply_linear(linear: nn.Module, x: Tensor, *, fused: bool, add_bias: bool = True) -> Tensor:
    """What a linear layer makes of x; without its bias, where that was `deferred_bias`."""
    if fused and linear.training and isinstance(linear, nn.Linear):
        from noise2text.acceleration.fused import linear as fused_linear

        return fused_linear(x, linear.weight, linear.bias if add_bias else None)
    assert add_bias
    out: Tensor = linear(x)
    return out


def add_and_norm(norm: AddNorm, x: Tensor, sublayer: SubLayer, *inputs: Any) -> Tensor:
    """LayerNorm(x + dropout(part(x, …))); in fused training the norm adds the part's last bias."""
    if norm.fused and sublayer.fused and norm.training and not sublayer._forward_hooks:
        from noise2text.acceleration.fused import MAX_NORM_WIDTH, deferred_bias

        input_bias = deferred_bias(sublayer.output_linear, x) if x.shape[-1] <= MAX_NORM_WIDTH else None
        if input_bias is not None:
            return cast(Tensor, norm(x, sublayer(x, *inputs, add_bias=False), input_bias))
    return cast(Tensor, norm(x, sublayer(x, *inputs)))


class SelfAttention(nn.Module):
    """Every position looks at every visible position."""

    fused = False  # whether training takes the products of `networks/fused.py`

    def __init__(self, model_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_projection = nn.Linear(model_dim, 3 * model_dim)
        self.output_projection = nn.Linear(model_dim, model_dim)

    @property
    def output_linear(self) -> nn.Module:
        return self.output_projection

    def forward(self, x: Tensor, mask: Tensor | None, *, add_bias: bool = True) -> Tensor:
        """What each position takes from all that are visible; without a mask, all are."""
        packed = 1 if mask is None else max(1, mask.shape[-2] // x.shape[1])
        parts = (part.reshape(x.shape[0] // packed, -1, x.shape[2]) for part in self._project_qkv(x))
        queries, keys, values = (split_heads(part, self.heads) for part in parts)
        seen = attend(queries, keys, values, mask).reshape(x.shape)
        return apply_linear(self.output_projection, seen, fused=self.fused, add_bias=add_bias)

    def _project_qkv(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, heads side by side."""
        qkv_projection = self.qkv_projection
        if self.fused and qkv_projection.training and isinstance(qkv_projection, nn.Linear):
            from noise2text.acceleration.fused import linear_qkv

            return linear_qkv(x, qkv_projection.weight, qkv_projection.bias)
        projected: Tensor = qkv_projection(x)
        return projected.chunk(3, dim=-1)


class CrossAttention(nn.Module):
    """Every position looks at the source, whose keys and values are given, a row a sentence or several."""

    fused = False

    def __init__(self, model_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_projection = nn.Linear(model_dim, model_dim)
        self.output_projection = nn.Linear(model_dim, model_dim)

    @property
    def output_linear(self) -> nn.Module:
        return self.output_projection

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, add_bias: bool = True
    ) -> Tensor:
        sentences = keys.shape[0]
        # The candidates of a sentence share its keys: they are folded into the query's length, and so are
        # sentences that lie side by side.
        projected = apply_linear(self.query_projection, x, fused=self.fused)
        queries = projected.reshape(sentences, -1, x.shape[-1])  # (S, C·L, W)
        seen = attend(split_heads(queries, self.heads), keys, values, mask).reshape(x.shape)
        return apply_linear(self.output_projection, seen, fused=self.fused, add_bias=add_bias)


class FeedForward(nn.Sequential):
    """Linear, an activation, dropout, Linear."""

    fused = False

    def __init__(
        self,
        in_dim: int,
        hidden: int,
        out: int,
        *,
        dropout: float = 0.0,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__(nn.Linear(in_dim, hidden), activation(), nn.Dropout(dropout), nn.Linear(hidden, out))

    @property
    def output_linear(self) -> nn.Module:
        return self[-1]

    def forward(self, x: Tensor, *, add_bias: bool = True) -> Tensor:
        first, activation, dropout_layer, output_linear = self
        has_hooks = first._forward_hooks  # a hook wants the layer to be called
        if (
            is_gpu_inference(x)
            and isinstance(activation, nn.ReLU)
            and isinstance(first, nn.Linear)
            and not has_hooks
        ):
            # The activation is applied where the product is made, instead of reading all of it again.
            hidden = torch._addmm_activation(first.bias, x.flatten(0, -2), first.weight.t())
            out: Tensor = output_linear(hidden.unflatten(0, x.shape[:-1]))
            return out
        if self.fused and self.training:
            from noise2text.acceleration.fused import bias_activation, deferred_bias, has_kernel

            input_bias = deferred_bias(first, x) if has_kernel(activation) else None
            product = apply_linear(first, x, fused=True, add_bias=input_bias is None)
            hidden = bias_activation(activation, product, input_bias)
        else:
            hidden = activation(first(x))
        return apply_linear(output_linear, dropout_layer(hidden), fused=self.fused, add_bias=add_bias)


SubLayer = SelfAttention | CrossAttention | FeedForward


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network."""

    def __init__(
        self,
        model_dim: int,
        ffn_dim: int,
        heads: int,
        *,
        dropout: float,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.self_attention, self.self_attention_norm = (
            SelfAttention(model_dim, heads),
            AddNorm(model_dim, dropout),
        )
        self.feed_forward = FeedForward(model_dim, ffn_dim, model_dim, activation=activation)
        self.feed_forward_norm = AddNorm(model_dim, dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = add_and_norm(self.self_attention_norm, x, self.self_attention, mask)
        return add_and_norm(self.feed_forward_norm, x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, then a feed-forward network."""

    def __init__(self, model_dim: int, ffn_dim: int, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.self_attention, self.self_attention_norm = (
            SelfAttention(model_dim, heads),
            AddNorm(model_dim, dropout),
        )
        self.cross_attention, self.cross_attention_norm = (
            CrossAttention(model_dim, heads),
            AddNorm(model_dim, dropout),
        )
        self.feed_forward, self.feed_forward_norm = (
            FeedForward(model_dim, ffn_dim, model_dim),
            AddNorm(model_dim, dropout),
        )

    def forward(
        self, x: Tensor, mask: Tensor | None, keys: Tensor, values: Tensor, source_mask: Tensor
    ) -> Tensor:
        x = add_and_norm(self.self_attention_norm, x, self.self_attention, mask)
        x = add_and_norm(self.cross_attention_norm, x, self.cross_attention, keys, values, source_mask)
        return add_and_norm(self.feed_forward_norm, x, self.feed_forward)


class LayerStack(nn.ModuleList):
    """Layers one upon the other; short rows may lie side by side in training, `pack_tokens` tokens or fewer.

    A GPU's attention takes 64 queries at once, however few a row has. Its fastest kernel takes no mask, so
    none is made for layers that are only ever given `full` rows.
    """

    pack_tokens = 1
    full = False  # whether no position that they are given is ever padding

    def packed(self, padding: Tensor) -> int:
        """How many of the rows (B, L) lie side by side."""
        rows, length = padding.shape
        max_packed = max(1, self.pack_tokens // length) if self.training else 1
        return next(packed for packed in range(max_packed, 0, -1) if rows % packed == 0)

    def mask(self, padding: Tensor, like: Tensor) -> Tensor | None:
        """What self-attention is told about the padding, if anything (`padding_mask`)."""
        packed = self.packed(padding)
        if self.full and packed == 1:
            return None
        return padding_mask(padding, like, packed=packed, queries=padding.shape[1])


class TimeEmbedding(nn.Module):
    """A clock in [0, 1] as a vector: sinusoids of 1000·clock, cosines first, then a small network."""

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", _frequencies(model_dim // 2), persistent=False)
        self.mlp = FeedForward(model_dim, 4 * model_dim, model_dim)

    frequencies: Tensor

    def forward(self, timestep: Tensor) -> Tensor:
        """The embedding of every clock, one dimension more."""
        angles = 1000 * timestep[..., None].float() * self.frequencies.float()
        sinusoids = torch.cat([angles.cos(), angles.sin()], dim=-1)
        return self.mlp(sinusoids.to(next(self.mlp.parameters()).dtype))


def init_weights(module: nn.Module) -> None:
    """BERT's initialisation; positions start larger, or the training noise drowns them for long."""
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _frequencies(count: int) -> Tensor:
    return torch.exp(-math.log(10_000) * torch.arange(count) / count)
