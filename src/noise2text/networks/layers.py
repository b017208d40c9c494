"""The transformer's parts, post-norm as in Vaswani et al. (2017): x ← LayerNorm(x + f(x))."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

__all__ = [
    "CrossAttention",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "SelfAttention",
    "TimeEmbedding",
    "add_norm",
    "start",
    "visible",
]


def visible(padding: Tensor, like: Tensor) -> Tensor:
    """What to add to the attention's scores (B, 1, 1, S), so that every query sees all but the padding.

    Made once for all layers, in the type of the states: attention would make this of a mask each time.
    """
    return torch.zeros_like(padding, dtype=like.dtype).masked_fill_(padding, -torch.inf)[:, None, None, :]


def add_norm(norm: nn.LayerNorm, x: Tensor, y: Tensor) -> Tensor:
    """LayerNorm(x + y); one kernel where a GPU only generates."""
    if _only_generates(x) and x.dtype == y.dtype == norm.weight.dtype and _triton():
        from noise2text.networks.kernels import add_norm as fused

        return fused(x, y, norm.weight, norm.bias, norm.eps)
    out: Tensor = norm(x + y)
    return out


def _only_generates(x: Tensor) -> bool:
    """Whether a GPU computes this, and nobody will ask for gradients."""
    return x.is_cuda and torch.is_inference_mode_enabled() and not torch.is_autocast_enabled()


@functools.cache
def _triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, L, W) → (B, heads, L, W / heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class SelfAttention(nn.Module):
    """Every position looks at every visible position."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        queries, keys, values = (split_heads(part, self.heads) for part in self.project(x).chunk(3, dim=-1))
        seen = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return self.merge(seen.transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """Every position looks at the source, whose keys and values are given, a row a sentence."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, width)
        self.merge = nn.Linear(width, width)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        sentences = keys.shape[0]
        # The candidates of a sentence share its keys: they are folded into the query's length.
        queries = self.project(x).reshape(sentences, -1, x.shape[-1])  # (S, C·L, W)
        seen = scaled_dot_product_attention(split_heads(queries, self.heads), keys, values, attn_mask=mask)
        return self.merge(seen.transpose(1, 2).reshape(x.shape))


class FeedForward(nn.Sequential):
    """Linear, an activation, dropout, Linear."""

    def __init__(
        self,
        into: int,
        hidden: int,
        out: int,
        *,
        dropout: float = 0.0,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__(nn.Linear(into, hidden), activation(), nn.Dropout(dropout), nn.Linear(hidden, out))

    def forward(self, x: Tensor) -> Tensor:
        first, activation, _, last = self
        hooked = first._forward_hooks  # a hook wants the layer to be called
        if (
            _only_generates(x)
            and isinstance(activation, nn.ReLU)
            and isinstance(first, nn.Linear)
            and not hooked
        ):
            # The activation is applied where the product is made, instead of reading all of it again.
            hidden = torch._addmm_activation(first.bias, x.flatten(0, -2), first.weight.t())
            out: Tensor = last(hidden.unflatten(0, x.shape[:-1]))
            return out
        return super().forward(x)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network."""

    def __init__(
        self,
        width: int,
        ffn: int,
        heads: int,
        *,
        dropout: float,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.attention, self.attention_norm = SelfAttention(width, heads), nn.LayerNorm(width)
        self.feed = FeedForward(width, ffn, width, activation=activation)
        self.feed_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = add_norm(self.attention_norm, x, self.dropout(self.attention(x, mask)))
        return add_norm(self.feed_norm, x, self.dropout(self.feed(x)))


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, then a feed-forward network."""

    def __init__(self, width: int, ffn: int, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.attention, self.attention_norm = SelfAttention(width, heads), nn.LayerNorm(width)
        self.cross, self.cross_norm = CrossAttention(width, heads), nn.LayerNorm(width)
        self.feed, self.feed_norm = FeedForward(width, ffn, width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, keys: Tensor, values: Tensor, source_mask: Tensor) -> Tensor:
        x = add_norm(self.attention_norm, x, self.dropout(self.attention(x, mask)))
        x = add_norm(self.cross_norm, x, self.dropout(self.cross(x, keys, values, source_mask)))
        return add_norm(self.feed_norm, x, self.dropout(self.feed(x)))


class TimeEmbedding(nn.Module):
    """A clock in [0, 1] as a vector: sinusoids of 1000·clock, cosines first, then a small network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", _frequencies(width // 2), persistent=False)
        self.network = FeedForward(width, 4 * width, width)

    frequencies: Tensor

    def forward(self, clock: Tensor) -> Tensor:
        """The embedding of every clock, one dimension more."""
        angles = 1000 * clock[..., None].float() * self.frequencies.float()
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
        return self.network(waves.to(next(self.network.parameters()).dtype))


def start(module: nn.Module) -> None:
    """BERT's initialisation; positions start larger, or the training noise drowns them for long."""
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _frequencies(count: int) -> Tensor:
    return torch.exp(-math.log(10_000) * torch.arange(count) / count)
