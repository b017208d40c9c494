"""a = f(x + b), of a product x and its bias, ReLU or GELU; in Triton, imported only where it runs.

A bias costs nothing here, and its gradient, the sum of all rows, is added up where the gradient of x + b is
written: nobody has to read that once more. Each program sums its share of the rows in float32, then
`kernels.column_sums` the shares, always in the same order, so that the same numbers give the same bits. The
slope is computed again from x.

GELU needs Φ(x); with t = 1 / (1 + p·|x|/√2), Φ(−|x|) ≈ ½·(a₁t + … + a₅t⁵)·e^(−x²/2) (Abramowitz and Stegun,
7.1.26) is off by less than 1e-7, in float32 by 3e-7, and its exponential is the one that the slope
Φ(x) + x·φ(x) needs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from noise2text.acceleration.triton_generation import column_sums, shared

__all__ = ["activated"]

FORWARD = {"rows": 16, "columns": 256, "warps": 4}
BACK = {"rows": 8, "columns": 256, "warps": 4, "shares": 256}
"""The tiles there and back, and about how many programs share the rows on the way back."""


@triton.jit
def _tail(x):  # type: ignore[no-untyped-def]
    """Φ(−|x|), and e^(−x²/2)."""
    fall = tl.exp2(x * x * -0.7213475204444817)
    far = 1.0 + 0.3275911 * 0.7071067811865476 * tl.abs(x)
    t = tl.rsqrt(far * far)  # 1 / far, in fewer instructions
    series = 0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
    return t * series * fall, fall


@triton.jit
def _value(x, smooth: tl.constexpr):  # type: ignore[no-untyped-def]
    """GELU, or ReLU."""
    if smooth:
        below, _ = _tail(x)
        result = x * tl.where(x < 0.0, below, 1.0 - below)
    else:
        result = tl.where(x < 0.0, 0.0, x)
    return result


@triton.jit
def _slope(x, smooth: tl.constexpr):  # type: ignore[no-untyped-def]
    if smooth:
        below, fall = _tail(x)
        result = tl.where(x < 0.0, below, 1.0 - below) + x * fall * 0.3989422804014327
    else:
        result = tl.where(x > 0.0, 1.0, 0.0)
    return result


@triton.jit(do_not_specialize=["rows"])
def _activated(  # type: ignore[no-untyped-def]
    x, shift, out, rows, width, smooth: tl.constexpr, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(width, block_w)  # rows are too many for a grid's second dimension
    column = tl.program_id(0) % blocks * block_w + tl.arange(0, block_w)
    row = tl.program_id(0) // blocks * block_n + tl.arange(0, block_n)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(shift + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    tl.store(out + place, _value(total, smooth).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "repeats"])
def _activated_back(  # type: ignore[no-untyped-def]
    gradient, x, shift, on_x, sums, rows, width, repeats,
    smooth: tl.constexpr, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * block_w + tl.arange(0, block_w)
    first = tl.program_id(1) * repeats * block_n
    bias = tl.load(shift + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    summed = tl.zeros((block_n, block_w), tl.float32)
    for number in range(repeats):
        row = first + number * block_n + tl.arange(0, block_n)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + bias
        g *= _slope(total, smooth)
        tl.store(on_x + place, g.to(on_x.dtype.element_ty), mask=inside)
        summed += g
    tl.store(sums + tl.program_id(1) * width + column, tl.sum(summed, axis=0), mask=column < width)


def activated(x: Tensor, shift: Tensor, *, smooth: bool) -> Tensor:
    """GELU(x + shift) where it is to be smooth, else ReLU, in x's type; the shift (W,) is a bias."""
    with torch.cuda.device_of(x):
        out: Tensor = _Activated.apply(x, shift, smooth)
        return out


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: Tensor, smooth: bool) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, shift)
        ctx.smooth = smooth
        out, width = torch.empty_like(x), x.shape[-1]
        rows, tile = x.numel() // width, FORWARD
        grid = triton.cdiv(width, tile["columns"]) * triton.cdiv(rows, tile["rows"])
        _activated[(grid,)](
            x, shift, out, rows, width, smooth=smooth,
            block_n=tile["rows"], block_w=tile["columns"], num_warps=tile["warps"],
        )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, shift = ctx.saved_tensors
        gradient, on_x, width = gradient.contiguous(), torch.empty_like(x), x.shape[-1]
        rows, tile = x.numel() // width, BACK
        repeats, shares = shared(rows, tile["rows"], tile["shares"])
        sums = torch.empty(shares, width, dtype=torch.float32, device=x.device)
        _activated_back[(triton.cdiv(width, tile["columns"]), shares)](
            gradient, x, shift, on_x, sums, rows, width, repeats, smooth=ctx.smooth,
            block_n=tile["rows"], block_w=tile["columns"], num_warps=tile["warps"],
        )  # fmt: skip
        return on_x, column_sums(sums).to(shift.dtype), None
