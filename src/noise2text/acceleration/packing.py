"""Short rows side by side in training: p rows of L tokens become one of p·L, and a mask keeps them apart.

A GPU's attention takes 64 queries at once, however few a row has, so short rows alone leave most of it idle.
Only attention sees the packed rows; all other operations work token by token.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noise2text.acceleration.class_swap import swap_classes
from noise2text.nn.attention import additive_mask
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.encoder_decoder import Encoder, EncoderDecoder
from noise2text.nn.joint_transformer import JointTransformer
from noise2text.nn.layers import LayerStack, SelfAttention
from noise2text.nn.transformer import Transformer

__all__ = ["PackedLayerStack", "pack_layers", "pack_short_rows"]

PACK_TOKENS = 64
"""How many queries a GPU's attention takes at once."""

PACKABLE = (Encoder, EncoderDecoder, JointTransformer, Transformer)


def pack_short_rows(root: nn.Module, *, tokens: int = PACK_TOKENS) -> None:
    """Let the networks within the root pack short rows in training, at most `tokens` tokens side by side."""
    for network in root.modules():
        if isinstance(network, PACKABLE):
            pack_layers(network.layers, tokens=tokens)


def pack_layers(layers: LayerStack, *, tokens: int = PACK_TOKENS) -> None:
    """Let these layers pack short rows in training; callers must use the masks and keys that they return."""
    swap_classes(layers, {LayerStack: PackedLayerStack, SelfAttention: PackedSelfAttention})
    assert isinstance(layers, PackedLayerStack)
    layers.pack_tokens = tokens


def packed_padding_mask(padding: Tensor, like: Tensor, *, packed: int, queries: int) -> Tensor:
    """The mask (B / p, 1, p·queries, p·S) that hides padded keys (B, S), and each row from the others."""
    mask = additive_mask(padding, like)
    block_mask = additive_mask(~torch.eye(packed, dtype=torch.bool, device=like.device), like)
    rows = mask.view(-1, 1, 1, packed, padding.shape[1]) + block_mask[:, None, :, None]  # (B/p, p, 1, p, S)
    return rows.expand(-1, -1, queries, -1, -1).reshape(len(rows), 1, packed * queries, -1)


def packed_causal_mask(length: int, like: Tensor, *, packed: int) -> Tensor:
    """The mask (p·L, p·L) that hides later positions, and each row from the others."""
    positions = torch.arange(packed * length, device=like.device)
    visible = (positions[:, None] >= positions) & (positions[:, None] // length == positions // length)
    return additive_mask(~visible, like)


class PackedSelfAttention(SelfAttention):
    """Self-attention within packed rows, if the mask is one of packed rows."""

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        rows, _, length, _ = queries.shape
        packed = 1 if mask is None else max(1, mask.shape[-2] // length)
        if packed == 1:
            return super().attend(queries, keys, values, mask)
        queries, keys, values = (_pack_heads(part, packed) for part in (queries, keys, values))
        return super().attend(queries, keys, values, mask).reshape(rows, length, -1)


def _pack_heads(part: Tensor, packed: int) -> Tensor:
    """(B, heads, L, ·) → (B / p, heads, p·L, ·), without copying."""
    rows, heads, _, dim = part.shape
    return part.transpose(1, 2).reshape(rows // packed, -1, heads, dim).transpose(1, 2)


class PackedLayerStack(LayerStack):
    """Layers that attend within packed rows in training."""

    pack_tokens = PACK_TOKENS

    def rows_per_pack(self, rows: int, length: int) -> int:
        """How many of the rows of this length lie side by side: as many as fit and divide their number."""
        most = max(1, self.pack_tokens // length) if self.training else 1
        return next(packed for packed in range(most, 0, -1) if rows % packed == 0)

    def self_attention_mask(self, padding: Tensor, like: Tensor) -> Tensor | None:
        packed = self.rows_per_pack(*padding.shape)
        if packed == 1:
            return super().self_attention_mask(padding, like)
        return packed_padding_mask(padding, like, packed=packed, queries=padding.shape[1])

    def causal_mask(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        packed = self.rows_per_pack(rows, length)
        return super().causal_mask(x) if packed == 1 else packed_causal_mask(length, x, packed=packed)

    def source_mask(self, encoded: EncoderOutput, x: Tensor) -> Tensor:
        packed = len(encoded.padding) // encoded.keys.shape[1]  # sources in a row of keys
        if packed == 1:
            return super().source_mask(encoded, x)
        return packed_padding_mask(encoded.padding, x, packed=packed, queries=x.shape[1])

    def encoder_output(
        self, states: Tensor, padding: Tensor, keys_and_values: Tensor, *, heads: int
    ) -> EncoderOutput:
        packed = self.rows_per_pack(*padding.shape)
        rows = keys_and_values.reshape(len(keys_and_values) // packed, -1, keys_and_values.shape[2])
        return super().encoder_output(states, padding, rows, heads=heads)
