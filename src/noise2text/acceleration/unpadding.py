"""Decoder layers that leave padding out, on a CPU.

    x (B, L, W)  →  the N positions that are no padding (N, W)  →  layers  →  (B, L, W), zeros at padding

The candidates of a sentence have several lengths, and the sentences of a batch, too: two fifths of the
positions of a batch are padding. Everything but attention works position by position, so it needs no padding;
attention gets it back. Where a position's result depends on no other row (`int8.py`, `batch_invariance.py`),
the results are the same to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noise2text.acceleration.class_swap import swap_classes
from noise2text.nn.attention import split_heads
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.layers import CrossAttention, LayerStack, SelfAttention

__all__ = ["MIN_PADDING", "leave_out_padding"]

MIN_PADDING = 256
"""The positions that padding must have; less, as that of one sentence, costs less than leaving it out."""


def leave_out_padding(module: nn.Module) -> None:
    """Let the decoder layers within the module compute nothing for padding."""
    swap_classes(
        module,
        {
            LayerStack: UnpaddingLayerStack,
            SelfAttention: UnpaddingSelfAttention,
            CrossAttention: UnpaddingCrossAttention,
        },
    )


@dataclass(frozen=True)
class UnpaddedMask:
    """The mask of attention between padded rows, and where the positions without padding are in them."""

    mask: Tensor
    rows: int
    length: int
    kept: Tensor  # (N,), positions of the flattened rows

    def pad(self, states: Tensor) -> Tensor:
        """The states (N, W) as rows (B, L, W), with zeros at padding."""
        padded = states.new_zeros(self.rows * self.length, states.shape[-1])
        return padded.index_copy_(0, self.kept, states).view(self.rows, self.length, -1)

    def unpad(self, states: Tensor) -> Tensor:
        """The states (N, W) of rows (B, L, W)."""
        return states.flatten(0, 1).index_select(0, self.kept)


class UnpaddingLayerStack(LayerStack):
    """Layers that get the positions without padding, if much is padding."""

    def decode(self, x: Tensor, padding: Tensor, encoded: EncoderOutput) -> Tensor:
        if torch.is_grad_enabled() or int(padding.sum()) < MIN_PADDING:
            return super().decode(x, padding, encoded)
        (rows, length), kept = padding.shape, (~padding).flatten().nonzero()[:, 0]
        mask = UnpaddedMask(self.padding_mask(padding, x), rows, length, kept)
        source_mask = UnpaddedMask(self.source_mask(encoded, x), rows, length, kept)
        return mask.pad(self.run_layers(mask.unpad(x), mask, encoded, source_mask))


class UnpaddingSelfAttention(SelfAttention):
    """Self-attention that pads its queries, keys and values, and nothing else."""

    def forward(self, x: Tensor, mask: Tensor | UnpaddedMask | None) -> Tensor:
        if not isinstance(mask, UnpaddedMask):
            return super().forward(x, mask)
        parts = mask.pad(self.qkv_projection(x)).chunk(3, dim=-1)
        queries, keys, values = (split_heads(part, self.heads) for part in parts)
        output: Tensor = self.output_projection(mask.unpad(self.attend(queries, keys, values, mask.mask)))
        return output


class UnpaddingCrossAttention(CrossAttention):
    """Attention to the source that pads its queries, and nothing else."""

    def attend_to_source(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | UnpaddedMask
    ) -> Tensor:
        if not isinstance(mask, UnpaddedMask):
            return super().attend_to_source(queries, keys, values, mask)
        return mask.unpad(super().attend_to_source(mask.pad(queries), keys, values, mask.mask))
