"""Attention and float32 layers whose results do not depend on the batch, bit for bit, on a CPU.

    attention   softmax(q·kᵀ / √d + mask)·v of a multiple of 16 keys, the added ones hidden, and of 4 queries
    Linear      W·x + b, with at least 16 rows

A sum of floats depends on the order of its terms. A CPU's kernels take another order for the keys beyond the
last whole vector, and for few rows; then the last bit of a row depends on the texts beside it. In
float32 that changes no text, but rounding to int8 turns a last bit into 1 % wherever a value is near the
middle between two integers. With these shapes every row is summed in the same order in every batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from noise2text.acceleration.class_swap import swap_classes
from noise2text.nn.attention import attend
from noise2text.nn.layers import CrossAttention, SelfAttention

__all__ = ["attend_in_blocks", "make_batch_invariant"]

KEY_BLOCK = 16  # floats in the widest vector of a CPU
QUERY_BLOCK = 4  # products of fewer rows have kernels of their own
MIN_ROWS = 16  # the same of layers, of which some CPUs sum up to 15 rows in another order


def make_batch_invariant(module: nn.Module) -> None:
    """Let the module's attention and float32 layers give each row the same bits in every batch."""
    swap_classes(
        module,
        {
            SelfAttention: BlockSelfAttention,
            CrossAttention: BlockCrossAttention,
            nn.Linear: PaddedLinear,
        },
    )


def attend_in_blocks(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """The output of `attend`, of whole blocks of queries and keys; those that fill a block are hidden."""
    length = queries.shape[2]
    more_queries, more_keys = -length % QUERY_BLOCK, -keys.shape[2] % KEY_BLOCK
    if more_keys:
        if mask is None:
            mask = keys.new_zeros(1, 1, 1, keys.shape[2])
        mask = pad(mask, (0, more_keys), value=-torch.inf)
        keys, values = pad(keys, (0, 0, 0, more_keys)), pad(values, (0, 0, 0, more_keys))
    if more_queries:
        queries = pad(queries, (0, 0, 0, more_queries))
        if mask is not None and mask.shape[-2] > 1:
            mask = pad(mask, (0, 0, 0, more_queries))
    return attend(queries, keys, values, mask)[:, :length]


class BlockSelfAttention(SelfAttention):
    """Self-attention in whole blocks."""

    attend = staticmethod(attend_in_blocks)


class BlockCrossAttention(CrossAttention):
    """Attention to the source in whole blocks."""

    attend = staticmethod(attend_in_blocks)


class PaddedLinear(nn.Linear):
    """A linear layer that adds rows of zeros to an input of very few."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)  # always a matrix: others have another kernel
        missing = max(0, MIN_ROWS - len(rows))
        padded = pad(rows, (0, 0, 0, missing)) if missing else rows
        return super().forward(padded)[: len(rows)].view(*x.shape[:-1], self.out_features)
