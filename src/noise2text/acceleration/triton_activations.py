"""a = f(x + b), of a product x and its bias b, with f = ReLU or GELU; in Triton, imported only where it runs.

Adding the bias costs nothing here. Its gradient, the sum of all rows, is summed while the gradient of x + b
is written, so nothing is read again. Each program sums its share of the rows in float32, then `column_sums`
sums the shares, always in the same order, so that the same numbers give the same bits. The derivative is
recomputed from x.

GELU needs Φ(x); with t = 1 / (1 + p·|x|/√2), Φ(−|x|) ≈ ½·(a₁t + … + a₅t⁵)·e^(−x²/2) (Abramowitz and Stegun,
7.1.26) has an error below 1e-7, in float32 of 3e-7, and its exponential is the one that the derivative
Φ(x) + x·φ(x) needs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from noise2text.acceleration.triton_generation import column_sums, split_rows

__all__ = ["bias_activation"]

FORWARD = {"rows": 16, "columns": 256, "warps": 4}
BACKWARD = {"rows": 8, "columns": 256, "warps": 4, "shares": 256}
"""The tiles of both passes, and about how many programs share the rows in the backward pass."""


@triton.jit
def _normal_tail(x):  # type: ignore[no-untyped-def]
    """Φ(−|x|), and e^(−x²/2)."""
    gaussian = tl.exp2(x * x * -0.7213475204444817)
    denominator = 1.0 + 0.3275911 * 0.7071067811865476 * tl.abs(x)
    t = tl.rsqrt(denominator * denominator)  # 1 / denominator, in fewer instructions
    series = 0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
    return t * series * gaussian, gaussian


@triton.jit
def _activation(x, is_gelu: tl.constexpr):  # type: ignore[no-untyped-def]
    """GELU, or ReLU."""
    if is_gelu:
        tail, _ = _normal_tail(x)
        result = x * tl.where(x < 0.0, tail, 1.0 - tail)
    else:
        result = tl.where(x < 0.0, 0.0, x)
    return result


@triton.jit
def _derivative(x, is_gelu: tl.constexpr):  # type: ignore[no-untyped-def]
    if is_gelu:
        tail, gaussian = _normal_tail(x)
        result = tl.where(x < 0.0, tail, 1.0 - tail) + x * gaussian * 0.3989422804014327
    else:
        result = tl.where(x > 0.0, 1.0, 0.0)
    return result


@triton.jit(do_not_specialize=["rows"])
def _bias_activation_kernel(  # type: ignore[no-untyped-def]
    x, input_bias, out, rows, width, is_gelu: tl.constexpr, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(width, block_w)  # rows are too many for a grid's second dimension
    column = tl.program_id(0) % blocks * block_w + tl.arange(0, block_w)
    row = tl.program_id(0) // blocks * block_n + tl.arange(0, block_n)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(input_bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    tl.store(out + place, _activation(total, is_gelu).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "tiles_per_program"])
def _bias_activation_backward_kernel(  # type: ignore[no-untyped-def]
    gradient, x, input_bias, grad_x, sums, rows, width, tiles_per_program,
    is_gelu: tl.constexpr, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * block_w + tl.arange(0, block_w)
    first = tl.program_id(1) * tiles_per_program * block_n
    bias = tl.load(input_bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    summed = tl.zeros((block_n, block_w), tl.float32)
    for number in range(tiles_per_program):
        row = first + number * block_n + tl.arange(0, block_n)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + bias
        g *= _derivative(total, is_gelu)
        tl.store(grad_x + place, g.to(grad_x.dtype.element_ty), mask=inside)
        summed += g
    tl.store(sums + tl.program_id(1) * width + column, tl.sum(summed, axis=0), mask=column < width)


def bias_activation(x: Tensor, input_bias: Tensor, *, is_gelu: bool) -> Tensor:
    """GELU(x + input_bias) or ReLU(x + input_bias), in the dtype of x; the bias is (W,)."""
    with torch.cuda.device_of(x):
        out: Tensor = _BiasActivation.apply(x, input_bias, is_gelu)
        return out


class _BiasActivation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, input_bias: Tensor, is_gelu: bool) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, input_bias)
        ctx.is_gelu = is_gelu
        out, width = torch.empty_like(x), x.shape[-1]
        rows, tile = x.numel() // width, FORWARD
        grid = triton.cdiv(width, tile["columns"]) * triton.cdiv(rows, tile["rows"])
        _bias_activation_kernel[(grid,)](
            x, input_bias, out, rows, width, is_gelu=is_gelu,
            block_n=tile["rows"], block_w=tile["columns"], num_warps=tile["warps"],
        )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, input_bias = ctx.saved_tensors
        gradient, grad_x, width = gradient.contiguous(), torch.empty_like(x), x.shape[-1]
        rows, tile = x.numel() // width, BACKWARD
        tiles_per_program, programs = split_rows(rows, tile["rows"], tile["shares"])
        sums = torch.empty(programs, width, dtype=torch.float32, device=x.device)
        _bias_activation_backward_kernel[(triton.cdiv(width, tile["columns"]), programs)](
            gradient, x, input_bias, grad_x, sums, rows, width, tiles_per_program, is_gelu=ctx.is_gelu,
            block_n=tile["rows"], block_w=tile["columns"], num_warps=tile["warps"],
        )  # fmt: skip
        return grad_x, column_sums(sums).to(input_bias.dtype), None
