"""The Transformer of Vaswani et al. (2017), post-norm, with one table for source, target and output.

    x = √W·E[y] + positions,    logits = decoder(x, encoder(source)) · Eᵀ

Positions start as the paper's sinusoids, as large as the embeddings, and are learned from there on.

The cache keeps a step's keys and values where they were first stored. If hypothesis b continues hypothesis a,
only a mask changes (`visible_keys`), which says which keys of the past are b's. So the K hypotheses of a
sentence are K queries over the same K·L keys, and a beam search that reorders them copies no keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from noise2text.data.layouts.base import Source
from noise2text.nn.attention import additive_mask, split_heads
from noise2text.nn.autoregressive import AutoregressiveNetwork
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.embeddings import LazyLogits, TokenEmbedding
from noise2text.nn.encoder_decoder import Encoder
from noise2text.nn.layers import CrossAttention, DecoderLayer, LayerShape, LayerStack, SelfAttention

__all__ = ["CausalAttention", "KVCache", "Transformer", "sinusoidal_positions"]


@dataclass(frozen=True)
class KVCache:
    """The keys and values of past steps, and which hypothesis sees which of them."""

    keys_and_values: Tensor  # (layers, B, L, K, 2·W), keys then values
    visible_keys: Tensor  # (B, K, L, K): whether the first hypothesis sees the second's key of a step
    own_keys: Tensor  # (1, K, 1, K): each hypothesis sees its own


class CausalAttention(SelfAttention):
    """Self-attention that can also take one step at a time."""

    def step(self, x: Tensor, keys_and_values: Tensor, position: Tensor, visible_keys: Tensor) -> Tensor:
        """The attention output for one token of each hypothesis (B, K, W); the mask is (B, 1, K, L·K)."""
        model_dim, length = x.shape[-1], visible_keys.shape[-1] // x.shape[1]
        queries, new_keys_and_values = self.qkv_projection(x).split([model_dim, 2 * model_dim], dim=-1)
        keys_and_values.index_copy_(1, position, new_keys_and_values.unsqueeze(1).to(keys_and_values.dtype))
        keys, values = keys_and_values[:, :length].flatten(1, 2).split(model_dim, dim=-1)  # (B, L·K, W)
        attended = scaled_dot_product_attention(
            split_heads(queries, self.heads),
            split_heads(keys, self.heads),
            split_heads(values, self.heads),
            attn_mask=visible_keys,
        )
        return self.output_projection(attended.transpose(1, 2).flatten(2))


class CausalLayer(DecoderLayer):
    """A decoder layer whose self-attention can take one step at a time."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__(shape)
        self.self_attention: CausalAttention = CausalAttention(shape.model_dim, shape.heads)

    def step(
        self,
        x: Tensor,
        keys_and_values: Tensor,
        position: Tensor,
        visible_keys: Tensor,
        keys: Tensor,
        values: Tensor,
        source_mask: Tensor,
    ) -> Tensor:
        """`forward` for one token of each hypothesis, without dropout."""
        x = self.self_attention_norm(x, self.self_attention.step(x, keys_and_values, position, visible_keys))
        x = self.cross_attention_norm(x, self.cross_attention(x, keys, values, source_mask))
        return self.feed_forward_norm(x, self.feed_forward(x))


class Transformer(AutoregressiveNetwork):
    """An encoder-decoder that generates from left to right."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        shape: LayerShape,
        *,
        encoder_layers: int,
        decoder_layers: int,
        source_positions: int,
        target_positions: int,
    ) -> None:
        super().__init__()
        self.embedding, self.heads, model_dim = embedding, shape.heads, shape.model_dim
        self.encoder = Encoder(embedding, shape, layers=encoder_layers, positions=source_positions)
        self.encoder.input_projection = nn.Identity()  # embeddings are as wide as the states
        # One Linear computes the cross-attention keys and values of all layers, once per sentence.
        self.key_value_projection = nn.Linear(model_dim, 2 * decoder_layers * model_dim)
        self.position_embedding = nn.Embedding(target_positions, model_dim)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = LayerStack(CausalLayer(shape) for _ in range(decoder_layers))
        self._init_weights()

    @torch.no_grad()
    def _init_weights(self) -> None:
        """Set Glorot and Bengio's initial weights, divided by √layers for values and all outputs.

        A layer then adds little to its input, and the norms hardly change the size of the gradient (Zhang et
        al., 2019); otherwise six layers barely learn. Queries, keys and values count as one matrix, as in
        torch and fairseq.
        """
        layers = len(self.layers)
        output_gain, query_key_gain = layers**-0.5, 0.5**0.5
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)
                nn.init.xavier_uniform_(part.weight, gain=output_gain)
        for part in self.modules():
            if isinstance(part, SelfAttention):
                _init_blocks(part.qkv_projection, [query_key_gain, query_key_gain, output_gain])
            if isinstance(part, CrossAttention):
                _init_blocks(part.query_projection, [query_key_gain])
        _init_blocks(self.key_value_projection, [query_key_gain] * layers + [output_gain] * layers)
        for positions in (self.encoder.position_embedding, self.position_embedding):
            positions.weight.copy_(sinusoidal_positions(positions.num_embeddings, self.embedding.dim))

    def encode(self, source: Source) -> EncoderOutput:
        states = self.encoder(source)
        keys_and_values = self.key_value_projection(states)
        return self.layers.encoder_output(states, source.padding, keys_and_values, heads=self.heads)

    def forward(self, tokens: Tensor, encoded: EncoderOutput) -> Tensor:
        return self.lazy_logits(tokens, encoded).logits()

    def lazy_logits(self, tokens: Tensor, encoded: EncoderOutput) -> LazyLogits:
        position_vectors = self.position_embedding.weight[: tokens.shape[1]]
        x = self.dropout(self.embedding.embed(tokens) + position_vectors)
        mask, source_mask = self.layers.causal_mask(x), self.layers.source_mask(encoded, x)
        return self.embedding.lazy_logits(self.layers.run_layers(x, mask, encoded, source_mask))

    def empty_cache(self, encoded: EncoderOutput, hypotheses: int, *, length: int) -> KVCache:
        sentences, device = len(encoded.padding), encoded.padding.device
        shape = (len(self.layers), sentences, length, hypotheses, 2 * self.embedding.dim)
        own_keys = torch.eye(hypotheses, dtype=torch.bool, device=device)
        return KVCache(
            keys_and_values=torch.zeros(shape, dtype=encoded.keys.dtype, device=device),
            visible_keys=torch.zeros(
                sentences, hypotheses, length, hypotheses, dtype=torch.bool, device=device
            ),
            own_keys=own_keys[None, :, None],
        )

    def step(
        self, tokens: Tensor, position: Tensor, cache: KVCache, encoded: EncoderOutput, *, cache_length: int
    ) -> Tensor:
        visible_keys, own_keys = cache.visible_keys, cache.own_keys
        visible_keys.index_copy_(2, position, own_keys.expand(len(visible_keys), -1, -1, -1))
        # Masks that are added to the scores are converted once per step instead of once per layer.
        mask = additive_mask(
            ~visible_keys[:, :, :cache_length].flatten(2).unsqueeze(1), cache.keys_and_values
        )  # (B, 1, K, L·K)
        source_mask = additive_mask(encoded.padding[:, None, None, :], encoded.keys)
        x = self.embedding.embed(tokens) + self.position_embedding.weight.index_select(
            0, position
        )  # (B, K, W)
        for layer, keys_and_values, keys, values in zip(
            self.layers, cache.keys_and_values, encoded.keys, encoded.values, strict=True
        ):
            x = layer.step(x, keys_and_values, position, mask, keys, values, source_mask)  # type: ignore[operator]
        return self.embedding.logits(x)

    def reorder(self, cache: KVCache, parents: Tensor) -> None:
        index = parents[:, :, None, None].expand_as(cache.visible_keys)
        cache.visible_keys.copy_(cache.visible_keys.gather(1, index))


def _init_blocks(linear: nn.Linear, gains: Sequence[float]) -> None:
    """Initialise each square block of a linear layer with its own gain."""
    for block, gain in zip(linear.weight.chunk(len(gains)), gains, strict=True):
        nn.init.xavier_uniform_(block, gain=gain)


def sinusoidal_positions(length: int, model_dim: int) -> Tensor:
    """The position embeddings (length, W) of the paper's section 3.5, all sines before all cosines."""
    frequencies = 10_000 ** (-torch.arange(0, model_dim, 2) / model_dim)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
