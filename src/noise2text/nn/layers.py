"""Transformer layers, post-norm as in Vaswani et al. (2017): x ← LayerNorm(x + f(x)).

They are plain PyTorch. What makes them fast replaces them from outside (`noise2text.acceleration`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from noise2text.nn.attention import attend, causal_mask, padding_mask, split_heads
from noise2text.nn.denoiser import EncoderOutput

__all__ = [
    "AddNorm",
    "CrossAttention",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "LayerShape",
    "LayerStack",
    "SelfAttention",
    "TanhProjection",
    "TimeEmbedding",
    "UnpaddedLayerStack",
    "init_weights",
]


class AddNorm(nn.LayerNorm):
    """LayerNorm(x + dropout(y)), which ends every sublayer; y may have fewer dimensions than x."""

    def __init__(self, model_dim: int, dropout: float) -> None:
        super().__init__(model_dim)
        self.dropout_rate = dropout

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x + dropout(y, self.dropout_rate, self.training))


class SelfAttention(nn.Module):
    """Every position attends to every position that the mask leaves visible; without a mask, to all."""

    attend = staticmethod(attend)  # what faster kernels replace

    def __init__(self, model_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_projection = nn.Linear(model_dim, 3 * model_dim)
        self.output_projection = nn.Linear(model_dim, model_dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The attention output (B, L, W) for x (B, L, W)."""
        parts = self.qkv_projection(x).chunk(3, dim=-1)
        queries, keys, values = (split_heads(part, self.heads) for part in parts)
        output: Tensor = self.output_projection(self.attend(queries, keys, values, mask))
        return output


class CrossAttention(nn.Module):
    """Every position attends to the encoded source, whose keys and values are given."""

    attend = staticmethod(attend)  # what faster kernels replace

    def __init__(self, model_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_projection = nn.Linear(model_dim, model_dim)
        self.output_projection = nn.Linear(model_dim, model_dim)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """The attention output (B, L, W) for x (B, L, W) and keys of S ≤ B sources."""
        attended = self.attend_to_source(self.query_projection(x), keys, values, mask)
        output: Tensor = self.output_projection(attended)
        return output

    def attend_to_source(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """The heads' outputs side by side, of the queries' shape (B, L, W)."""
        # The C candidates of a sentence share its keys, so they are folded into the queries' length.
        folded = queries.reshape(keys.shape[0], -1, queries.shape[-1])  # (S, C·L, W)
        return self.attend(split_heads(folded, self.heads), keys, values, mask).reshape(queries.shape)


class FeedForward(nn.Sequential):
    """Linear, an activation, Linear."""

    def __init__(
        self, in_dim: int, hidden: int, out: int, *, activation: Callable[[], nn.Module] = nn.ReLU
    ) -> None:
        # The third module does nothing; the names of weights in model folders count it.
        super().__init__(nn.Linear(in_dim, hidden), activation(), nn.Identity(), nn.Linear(hidden, out))


class TanhProjection(nn.Sequential):
    """Linear, Tanh, Linear between the dimension of the embeddings and that of the states."""

    def __init__(self, in_dim: int, out: int, *, hidden: int) -> None:
        super().__init__(nn.Linear(in_dim, hidden), nn.Tanh(), nn.Linear(hidden, out))


@dataclass(frozen=True)
class LayerShape:
    """What the encoder and decoder layers of a network have in common."""

    model_dim: int  # W, the dimension of the states
    ffn_dim: int  # the inner dimension of the feed-forward networks
    heads: int
    dropout: float
    activation: Callable[[], nn.Module] = nn.ReLU  # of the feed-forward networks

    @classmethod
    def from_config(cls, config: Any) -> LayerShape:
        """The shape that a section `model` describes."""
        return cls(config.model_dim, config.ffn_dim, config.heads, config.dropout)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = SelfAttention(shape.model_dim, shape.heads)
        self.self_attention_norm = AddNorm(shape.model_dim, shape.dropout)
        self.feed_forward = FeedForward(
            shape.model_dim, shape.ffn_dim, shape.model_dim, activation=shape.activation
        )
        self.feed_forward_norm = AddNorm(shape.model_dim, shape.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.self_attention_norm(x, self.self_attention(x, mask))
        output: Tensor = self.feed_forward_norm(x, self.feed_forward(x))
        return output


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, then a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = SelfAttention(shape.model_dim, shape.heads)
        self.self_attention_norm = AddNorm(shape.model_dim, shape.dropout)
        self.cross_attention = CrossAttention(shape.model_dim, shape.heads)
        self.cross_attention_norm = AddNorm(shape.model_dim, shape.dropout)
        self.feed_forward = FeedForward(
            shape.model_dim, shape.ffn_dim, shape.model_dim, activation=shape.activation
        )
        self.feed_forward_norm = AddNorm(shape.model_dim, shape.dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None, keys: Tensor, values: Tensor, source_mask: Tensor
    ) -> Tensor:
        x = self.self_attention_norm(x, self.self_attention(x, mask))
        x = self.cross_attention_norm(x, self.cross_attention(x, keys, values, source_mask))
        output: Tensor = self.feed_forward_norm(x, self.feed_forward(x))
        return output


class LayerStack(nn.ModuleList):
    """Layers that are applied one after the other, and what they share: masks, keys and values."""

    padding_mask = staticmethod(padding_mask)  # what faster kernels replace

    def self_attention_mask(self, padding: Tensor, like: Tensor) -> Tensor | None:
        """The mask that hides padding (B, L) from self-attention, if there can be any."""
        return self.padding_mask(padding, like)

    def causal_mask(self, x: Tensor) -> Tensor:
        """The mask that hides later positions of x (B, L, W) from self-attention."""
        return causal_mask(x.shape[1], x)

    def source_mask(self, encoded: EncoderOutput, x: Tensor) -> Tensor:
        """The mask that hides the source's padding from the cross-attention of x (B, L, W)."""
        return self.padding_mask(encoded.padding, x)

    def decode(self, x: Tensor, padding: Tensor, encoded: EncoderOutput) -> Tensor:
        """The last states (B, L, W) of decoder layers that start from x, whose padding (B, L) is hidden."""
        return self.run_layers(x, self.self_attention_mask(padding, x), encoded, self.source_mask(encoded, x))

    def run_layers(self, x: Tensor, mask: Any, encoded: EncoderOutput, source_mask: Any) -> Tensor:
        """The last states of decoder layers, whose attention to x and to the source has these masks."""
        for layer, keys, values in zip(self, encoded.keys, encoded.values, strict=True):
            x = layer(x, mask, keys, values, source_mask)
        return x

    def encoder_output(
        self, states: Tensor, padding: Tensor, keys_and_values: Tensor, *, heads: int
    ) -> EncoderOutput:
        """Encoded sources, given all layers' keys and then all layers' values (B, S, 2·layers·W)."""
        split = split_heads(keys_and_values, 2 * len(self) * heads)  # (B, 2·layers·heads, S, ·)
        keys, values = split.unflatten(1, (2, len(self), heads)).permute(1, 2, 0, 3, 4, 5)
        return EncoderOutput(states, padding, keys, values)


class UnpaddedLayerStack(LayerStack):
    """Layers whose input never has padding: attention is fastest without a mask."""

    def self_attention_mask(self, padding: Tensor, like: Tensor) -> Tensor | None:
        return None


class TimeEmbedding(nn.Module):
    """A timestep in [0, 1] as a vector: sinusoids of 1000·timestep, cosines first, then a small network."""

    def __init__(
        self,
        model_dim: int,
        *,
        sinusoid_dim: int | None = None,
        hidden: int | None = None,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        """The sinusoids have by default `model_dim` dimensions, the network inside four times as many."""
        super().__init__()
        dim = sinusoid_dim or model_dim
        frequencies = torch.exp(-math.log(10_000) * torch.arange(dim // 2) / (dim // 2))
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.mlp = FeedForward(dim, hidden or 4 * dim, model_dim, activation=activation)

    frequencies: Tensor

    def forward(self, timestep: Tensor) -> Tensor:
        """The embedding (…, W) of every timestep (…)."""
        angles = 1000 * timestep[..., None].float() * self.frequencies.float()
        sinusoids = torch.cat([angles.cos(), angles.sin()], dim=-1)
        embedded: Tensor = self.mlp(sinusoids.to(next(self.mlp.parameters()).dtype))
        return embedded


def init_weights(module: nn.Module) -> None:
    """Give a module BERT's initial weights; positions start larger, or noise drowns them at first."""
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
