"""The transformer's parts, post-norm as in Vaswani et al. (2017): x ← LayerNorm(x + f(x))."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from noise2text.core.devices import has_triton
from noise2text.nn.attention import attend, only_generates, split_heads, visible

__all__ = [
    "AddNorm",
    "CrossAttention",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "SelfAttention",
    "Stack",
    "TimeEmbedding",
    "residual",
    "start",
]


class AddNorm(nn.LayerNorm):
    """LayerNorm(x + dropout(y + shift)): how every part of a layer ends; y may be the same for all rows.

    The shift is the bias of the product that y is, where that was left to its norm (`residual`).
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__(width)
        self.rate = dropout
        self.fused = False  # whether training compiles it (`training/passes.py`)

    def forward(self, x: Tensor, y: Tensor, shift: Tensor | None = None) -> Tensor:  # type: ignore[override]
        alike = x.dtype == y.dtype == self.weight.dtype and x.shape[1:] == y.shape[1:]
        if only_generates(x) and alike and shift is None and has_triton():
            from noise2text.acceleration.triton_generation import add_norm

            return add_norm(x, y, self.weight, self.bias, self.eps)
        if self.fused and self.training and torch.is_autocast_enabled(x.device.type):
            from noise2text.acceleration.fused import add_norm as fused

            return fused(x, y, self.weight, self.bias, eps=self.eps, rate=self.rate, shift=shift)
        y = y if shift is None else y + shift
        return super().forward(x + dropout(y, self.rate, self.training))


def multiplied(linear: nn.Module, x: Tensor, *, fused: bool, biased: bool = True) -> Tensor:
    """What a linear layer makes of x; without its bias, where that was `postponed`."""
    if fused and linear.training and isinstance(linear, nn.Linear):
        from noise2text.acceleration.fused import linear as fast

        return fast(x, linear.weight, linear.bias if biased else None)
    assert biased
    out: Tensor = linear(x)
    return out


def residual(norm: AddNorm, x: Tensor, part: Part, *given: Any) -> Tensor:
    """LayerNorm(x + dropout(part(x, …))); in fused training the norm adds the part's last bias."""
    if norm.fused and part.fused and norm.training and not part._forward_hooks:
        from noise2text.acceleration.fused import WIDEST_NORM, postponed

        shift = postponed(part.last, x) if x.shape[-1] <= WIDEST_NORM else None
        if shift is not None:
            return cast(Tensor, norm(x, part(x, *given, biased=False), shift))
    return cast(Tensor, norm(x, part(x, *given)))


class SelfAttention(nn.Module):
    """Every position looks at every visible position."""

    fused = False  # whether training takes the products of `networks/fused.py`

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)

    @property
    def last(self) -> nn.Module:
        return self.merge

    def forward(self, x: Tensor, mask: Tensor | None, *, biased: bool = True) -> Tensor:
        """What each position takes from all that are visible; without a mask, all are."""
        together = 1 if mask is None else max(1, mask.shape[-2] // x.shape[1])
        parts = (part.reshape(x.shape[0] // together, -1, x.shape[2]) for part in self._thirds(x))
        queries, keys, values = (split_heads(part, self.heads) for part in parts)
        seen = attend(queries, keys, values, mask).reshape(x.shape)
        return multiplied(self.merge, seen, fused=self.fused, biased=biased)

    def _thirds(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, heads side by side."""
        project = self.project
        if self.fused and project.training and isinstance(project, nn.Linear):
            from noise2text.acceleration.fused import thirds

            return thirds(x, project.weight, project.bias)
        projected: Tensor = project(x)
        return projected.chunk(3, dim=-1)


class CrossAttention(nn.Module):
    """Every position looks at the source, whose keys and values are given, a row a sentence or several."""

    fused = False

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, width)
        self.merge = nn.Linear(width, width)

    @property
    def last(self) -> nn.Module:
        return self.merge

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, biased: bool = True
    ) -> Tensor:
        sentences = keys.shape[0]
        # The candidates of a sentence share its keys: they are folded into the query's length, and so are
        # sentences that lie side by side.
        projected = multiplied(self.project, x, fused=self.fused)
        queries = projected.reshape(sentences, -1, x.shape[-1])  # (S, C·L, W)
        seen = attend(split_heads(queries, self.heads), keys, values, mask).reshape(x.shape)
        return multiplied(self.merge, seen, fused=self.fused, biased=biased)


class FeedForward(nn.Sequential):
    """Linear, an activation, dropout, Linear."""

    fused = False

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

    @property
    def last(self) -> nn.Module:
        return self[-1]

    def forward(self, x: Tensor, *, biased: bool = True) -> Tensor:
        first, activation, drop, last = self
        hooked = first._forward_hooks  # a hook wants the layer to be called
        if (
            only_generates(x)
            and isinstance(activation, nn.ReLU)
            and isinstance(first, nn.Linear)
            and not hooked
        ):
            # The activation is applied where the product is made, instead of reading all of it again.
            hidden = torch._addmm_activation(first.bias, x.flatten(0, -2), first.weight.t())
            out: Tensor = last(hidden.unflatten(0, x.shape[:-1]))
            return out
        if self.fused and self.training:
            from noise2text.acceleration.fused import activated, is_fused, postponed

            shift = postponed(first, x) if is_fused(activation) else None
            product = multiplied(first, x, fused=True, biased=shift is None)
            hidden = activated(activation, product, shift)
        else:
            hidden = activation(first(x))
        return multiplied(last, drop(hidden), fused=self.fused, biased=biased)


Part = SelfAttention | CrossAttention | FeedForward


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
        self.attention, self.attention_norm = SelfAttention(width, heads), AddNorm(width, dropout)
        self.feed = FeedForward(width, ffn, width, activation=activation)
        self.feed_norm = AddNorm(width, dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = residual(self.attention_norm, x, self.attention, mask)
        return residual(self.feed_norm, x, self.feed)


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, then a feed-forward network."""

    def __init__(self, width: int, ffn: int, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.attention, self.attention_norm = SelfAttention(width, heads), AddNorm(width, dropout)
        self.cross, self.cross_norm = CrossAttention(width, heads), AddNorm(width, dropout)
        self.feed, self.feed_norm = FeedForward(width, ffn, width), AddNorm(width, dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None, keys: Tensor, values: Tensor, source_mask: Tensor
    ) -> Tensor:
        x = residual(self.attention_norm, x, self.attention, mask)
        x = residual(self.cross_norm, x, self.cross, keys, values, source_mask)
        return residual(self.feed_norm, x, self.feed)


class Stack(nn.ModuleList):
    """Layers one upon the other; short rows may lie side by side in training, `tile` tokens or fewer.

    A GPU's attention takes 64 queries at once, however few a row has. Its fastest kernel takes no mask, so
    none is made for layers that are only ever given `full` rows.
    """

    tile = 1
    full = False  # whether no position that they are given is ever padding

    def together(self, padding: Tensor) -> int:
        """How many of the rows (B, L) lie side by side."""
        rows, length = padding.shape
        most = max(1, self.tile // length) if self.training else 1
        return next(together for together in range(most, 0, -1) if rows % together == 0)

    def mask(self, padding: Tensor, like: Tensor) -> Tensor | None:
        """What self-attention is told about the padding, if anything (`visible`)."""
        together = self.together(padding)
        if self.full and together == 1:
            return None
        return visible(padding, like, together=together, queries=padding.shape[1])


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
