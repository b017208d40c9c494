"""Attention of heads, and what it is told about padding.

attend    softmax(q·kᵀ / √d + mask)·v, by torch, or by our own kernel where it only generates
visible   the mask: 0 where something is seen and −∞ where it is hidden, made once for all layers
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from noise2text.core.devices import has_triton

__all__ = ["additive_mask", "attend", "is_gpu_inference", "padding_mask", "split_heads"]

MAX_TILE_KEYS = 64  # keys that one tile of our own kernel holds


def additive_mask(hidden: Tensor, like: Tensor) -> Tensor:
    """0 where something is seen and −∞ where it is hidden, in the type that attention computes in."""
    dtype = torch.get_autocast_dtype(like.device.type) if torch.is_autocast_enabled() else like.dtype
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -torch.inf)


def padding_mask(padding: Tensor, like: Tensor, *, packed: int = 1, queries: int = 1) -> Tensor:
    """What attention is told (B, 1, 1, S), so that every query sees all but the padding.

    It is added to the scores, and made once for all layers: attention would make this of a mask each time.
    Where rows of so many queries lie side by side, (B / together, 1, together·queries, together·S), none
    sees another's. Our own kernel reads the padding itself, as bytes: torch's attention means by booleans
    what is seen (`attend`).
    """
    if (
        packed == 1
        and padding.shape[1] <= MAX_TILE_KEYS
        and is_half_precision(like)
        and is_gpu_inference(like)
        and has_triton()
    ):
        return padding.view(torch.uint8)[:, None, None, :]
    mask = additive_mask(padding, like)
    if packed == 1:
        return mask[:, None, None, :]
    block_mask = additive_mask(~torch.eye(packed, dtype=torch.bool, device=like.device), like)
    rows = mask.view(-1, 1, 1, packed, padding.shape[1]) + block_mask[:, None, :, None]  # (R, p, 1, p, S)
    return rows.expand(-1, -1, queries, -1, -1).reshape(len(rows), 1, packed * queries, -1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, L, W) → (B, heads, L, W / heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of heads (B, heads, L, ·) to the keys that the mask leaves visible, as (B, L, W)."""
    if mask is not None and mask.dtype == torch.uint8:
        dim = queries.shape[-1]
        if 16 <= dim <= 128 and dim.bit_count() == 1:
            from noise2text.acceleration import triton_generation as kernels

            return kernels.attend(queries, keys, values, mask)
        mask = additive_mask(mask.bool(), queries)
    seen = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return seen.transpose(1, 2).flatten(2)


def is_gpu_inference(x: Tensor) -> bool:
    """Whether a GPU computes this, and nobody will ask for gradients."""
    return x.is_cuda and torch.is_inference_mode_enabled() and not torch.is_autocast_enabled()


def is_half_precision(x: Tensor) -> bool:
    return x.dtype in (torch.bfloat16, torch.float16)
