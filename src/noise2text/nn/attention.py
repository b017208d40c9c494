"""Multi-head attention, softmax(q·kᵀ / √d + mask)·v, and the masks that are added to its scores.

A mask is 0 where a key is visible and −∞ where it is hidden. It is computed once and shared by all layers:
given booleans, attention would convert them in every layer. Faster kernels for a GPU replace these layers
from outside (`acceleration/triton_layers.py`, `acceleration/fused.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["additive_mask", "attend", "causal_mask", "padding_mask", "split_heads"]


def additive_mask(hidden: Tensor, like: Tensor) -> Tensor:
    """0 where `hidden` is false and −∞ where it is true, in the dtype in which attention computes."""
    dtype = torch.get_autocast_dtype(like.device.type) if torch.is_autocast_enabled() else like.dtype
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -torch.inf)


def padding_mask(padding: Tensor, like: Tensor) -> Tensor:
    """The mask (B, 1, 1, S) that hides padded keys (B, S) from every head and query."""
    return additive_mask(padding, like)[:, None, None, :]


def causal_mask(length: int, like: Tensor) -> Tensor:
    """The mask (L, L) that hides later positions."""
    positions = torch.arange(length, device=like.device)
    return additive_mask(positions[:, None] < positions, like)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, L, W) → (B, heads, L, W / heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """The heads' outputs side by side, (B, L, W), of queries (B, heads, L, ·) and keys (B, heads, S, ·)."""
    attended = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return attended.transpose(1, 2).flatten(2)
