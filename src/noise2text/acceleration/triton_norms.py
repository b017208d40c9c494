"""LayerNorm(x + dropout(y + b)), of states x and a product y with its bias b; in Triton.

With n the normalised sum, g the gradient and γ the norm's weight, the backward pass reads the rows once:

    ∂x = (γg − mean(γg) − n·mean(γg·n)) / σ,    ∂y = ∂x / (1 − dropout rate) where dropout kept y, else 0.

It also sums Σ g·n, Σ g and Σ ∂y, the gradients of γ, of the norm's bias and of b: each program sums its share
of the rows, then `column_sums` sums the shares, always in the same order. Only x, y and two numbers per row
are saved; the dropout mask, the hash of `fused_functions.dropout_mask`, is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from noise2text.acceleration.triton_generation import column_sums, split_rows

__all__ = ["Dropout", "add_norm"]

FORWARD = {"numbers": 1024, "warps": 4, "shares": 8192}
BACKWARD = {"numbers": 4096, "warps": 8, "shares": 264}
"""How many numbers a tile of whole rows has, and about how many programs share the rows: few in the backward
pass, so that their sums are quickly added up."""


@triton.jit
def _dropout_mask(row, column, width, first, second, keep_threshold):  # type: ignore[no-untyped-def]
    """`fused_functions.dropout_mask` of some rows and columns."""
    bits = (row[:, None] * width + column[None, :] + first).to(tl.uint32, bitcast=True)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D ^ second.to(tl.uint32, bitcast=True)
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    bits = bits ^ (bits >> 16)
    return bits.to(tl.int32, bitcast=True) >= keep_threshold


@triton.jit
def _residual(x, y, input_bias, kept, keep_scale):  # type: ignore[no-untyped-def]
    """x + dropout(y + b)."""
    other = y.to(tl.float32)
    if input_bias is not None:
        other += input_bias[None, :]
    if kept is not None:
        other = tl.where(kept, other, 0.0) * keep_scale
    return x.to(tl.float32) + other


@triton.jit(do_not_specialize=["rows", "tiles_per_program", "keep_threshold"])
def _add_norm_kernel(  # type: ignore[no-untyped-def]
    x, y, input_bias, weight, bias, seeds, out, means, scales,
    rows, width, tiles_per_program, eps, keep_threshold, keep_scale,
    block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, block_w)
    known = column < width
    gain = tl.load(weight + column, mask=known, other=0.0).to(tl.float32)[None, :]
    level = tl.load(bias + column, mask=known, other=0.0).to(tl.float32)[None, :]
    own = None if input_bias is None else tl.load(input_bias + column, mask=known, other=0.0).to(tl.float32)
    one = None if seeds is None else tl.load(seeds)
    two = None if seeds is None else tl.load(seeds + 1)
    for number in range(tiles_per_program):
        row = (tl.program_id(0) * tiles_per_program + number) * block_n + tl.arange(0, block_n)
        inside = (row < rows)[:, None] & known[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        a, b = tl.load(x + place, mask=inside, other=0.0), tl.load(y + place, mask=inside, other=0.0)
        kept = None if seeds is None else _dropout_mask(row, column, width, one, two, keep_threshold)
        total = _residual(a, b, own, kept, keep_scale)  # 0 beyond the width
        mean = tl.sum(total, axis=1) / width
        centered = tl.where(known[None, :], total - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centered * centered, axis=1) / width + eps)
        result = centered * scale[:, None] * gain + level
        tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)
        tl.store(means + row, mean, mask=row < rows)
        tl.store(scales + row, scale, mask=row < rows)


@triton.jit
def _load_rows(gradient, x, y, means, scales, row, column, width, end):  # type: ignore[no-untyped-def]
    """The gradient, x, y, means and scales of some rows; 0 beyond the last one."""
    there = row < end
    inside = there[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    g = tl.load(gradient + place, mask=inside, other=0.0)
    a, b = tl.load(x + place, mask=inside, other=0.0), tl.load(y + place, mask=inside, other=0.0)
    return g, a, b, tl.load(means + row, mask=there, other=0.0), tl.load(scales + row, mask=there, other=0.0)


@triton.jit(do_not_specialize=["rows", "tiles_per_program", "keep_threshold"])
def _add_norm_backward_kernel(  # type: ignore[no-untyped-def]
    gradient, x, y, input_bias, weight, seeds, means, scales, grad_x, grad_y, sums,
    rows, width, tiles_per_program, keep_threshold, keep_scale, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, block_w)
    known = column < width
    gain = tl.load(weight + column, mask=known, other=0.0).to(tl.float32)[None, :]
    own = None if input_bias is None else tl.load(input_bias + column, mask=known, other=0.0).to(tl.float32)
    one = None if seeds is None else tl.load(seeds)
    two = None if seeds is None else tl.load(seeds + 1)
    grad_weight = tl.zeros((block_n, block_w), tl.float32)
    grad_bias = tl.zeros((block_n, block_w), tl.float32)
    grad_input_bias = tl.zeros((block_n, block_w), tl.float32)
    first = tl.program_id(0) * tiles_per_program * block_n
    end = tl.minimum(first + tiles_per_program * block_n, rows)
    row = first + tl.arange(0, block_n)
    next_g, next_a, next_b, next_mean, next_scale = _load_rows(
        gradient, x, y, means, scales, row, column, width, end
    )
    for _ in range(tiles_per_program):
        g, a, b, mean, scale = next_g.to(tl.float32), next_a, next_b, next_mean[:, None], next_scale[:, None]
        # Load the next rows while these are computed.
        next_g, next_a, next_b, next_mean, next_scale = _load_rows(
            gradient, x, y, means, scales, row + block_n, column, width, end
        )
        kept = None if seeds is None else _dropout_mask(row, column, width, one, two, keep_threshold)
        normed = (_residual(a, b, own, kept, keep_scale) - mean) * scale
        scaled_gradient = g * gain  # 0 beyond the width
        mean_gradient, projected_gradient = (
            tl.sum(scaled_gradient, axis=1) / width,
            tl.sum(scaled_gradient * normed, axis=1) / width,
        )
        step = (scaled_gradient - mean_gradient[:, None] - normed * projected_gradient[:, None]) * scale
        inside = (row < end)[:, None] & known[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(grad_x + place, step.to(grad_x.dtype.element_ty), mask=inside)
        if kept is not None:
            step = tl.where(kept, step, 0.0) * keep_scale
        if grad_y is not None:
            tl.store(grad_y + place, step.to(grad_y.dtype.element_ty), mask=inside)
        if input_bias is not None:
            grad_input_bias += step
        grad_weight += g * normed
        grad_bias += g
        row += block_n
    share = sums + tl.program_id(0).to(tl.int64) * (2 * width if input_bias is None else 3 * width) + column
    tl.store(share, tl.sum(grad_weight, axis=0), mask=known)
    tl.store(share + width, tl.sum(grad_bias, axis=0), mask=known)
    if input_bias is not None:
        tl.store(share + 2 * width, tl.sum(grad_input_bias, axis=0), mask=known)


@dataclass(frozen=True)
class Dropout:
    """The dropout rate, and the two seeds (int32, on the device) of `fused_functions.dropout_mask`."""

    dropout_rate: float
    seeds: Tensor | None  # none if the rate is 0

    @property
    def keep_threshold(self) -> int:
        """The first of the 2³² numbers, counted from −2³¹, that is kept."""
        return round(self.dropout_rate * 2**32) - 2**31

    @property
    def keep_scale(self) -> float:
        return 1 / (1 - self.dropout_rate)


def add_norm(
    x: Tensor,
    y: Tensor,
    input_bias: Tensor | None,
    *,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    dropout: Dropout,
    dtype: torch.dtype,
) -> Tensor:
    """LayerNorm(x + dropout(y + input_bias)) over the last dimension W, in the dtype; the bias is (W,)."""
    assert x.shape == y.shape
    with torch.cuda.device_of(x):
        out: Tensor = _AddNorm.apply(x, y, input_bias, weight, bias, eps, dropout, dtype)
        return out


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        input_bias: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        dropout: Dropout,
        dtype: torch.dtype,
    ) -> Tensor:
        x, y, width = x.contiguous(), y.contiguous(), x.shape[-1]
        rows, (tile, options) = x.numel() // width, _tile(width, FORWARD)
        means, scales = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        out = torch.empty_like(x, dtype=dtype)
        tiles_per_program, programs = split_rows(rows, tile, FORWARD["shares"])
        _add_norm_kernel[(programs,)](
            x, y, input_bias, weight, bias, dropout.seeds, out, means, scales,
            rows, width, tiles_per_program, eps, dropout.keep_threshold, dropout.keep_scale, **options,
        )  # fmt: skip
        ctx.save_for_backward(x, y, input_bias, weight, means, scales)
        ctx.dropout, ctx.bias_type = dropout, bias.dtype
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, y, input_bias, weight, means, scales = ctx.saved_tensors
        dropout, width = ctx.dropout, x.shape[-1]
        rows, (tile, options) = len(means), _tile(width, BACKWARD)
        grad_x = torch.empty_like(x)
        same = dropout.seeds is None and x.dtype == y.dtype  # then the gradients of x and y are equal
        grad_y = None if same else torch.empty_like(y)
        tiles_per_program, programs = split_rows(rows, tile, BACKWARD["shares"])
        sums = torch.empty(
            programs, (2 if input_bias is None else 3) * width, dtype=torch.float32, device=x.device
        )
        _add_norm_backward_kernel[(programs,)](
            gradient.contiguous(), x, y, input_bias, weight, dropout.seeds, means, scales,
            grad_x, grad_y, sums,
            rows, width, tiles_per_program, dropout.keep_threshold, dropout.keep_scale, **options,
        )  # fmt: skip
        grad_weight, grad_bias, *grad_input_bias = column_sums(sums).split(width)
        return (
            grad_x,
            grad_x if grad_y is None else grad_y,
            grad_input_bias[0].to(input_bias.dtype) if grad_input_bias else None,
            grad_weight.to(weight.dtype),
            grad_bias.to(ctx.bias_type),
            *(None,) * 3,
        )


def _tile(width: int, sizes: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """How many rows of this width a tile has, and the compile-time options of its kernel."""
    block = triton.next_power_of_2(width)
    rows = max(1, sizes["numbers"] // block)
    return rows, {"block_n": rows, "block_w": block, "num_warps": sizes["warps"]}
