"""LayerNorm(x + dropout(y + b)), of states x and a product y with its bias; in Triton.

With n the normalised sum, g the gradient and γ the norm's weight, the way back is one pass over the rows,

    ∂x = (γg − mean(γg) − n·mean(γg·n)) / σ,    ∂y = ∂x where dropout kept y, enlarged, else 0,

which also adds up Σ g·n, Σ g and Σ ∂y, the gradients of γ, of the norm's bias and of b: each program its
share of the rows, then `kernels.column_sums` the shares, always in the same order. Nothing is kept but x, y
and two numbers a row; what dropout keeps is the hash of `fused.kept`, computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from noise2text.acceleration.triton_generation import column_sums, shared

__all__ = ["Dropout", "add_norm"]

FORWARD = {"numbers": 1024, "warps": 4, "shares": 8192}
BACK = {"numbers": 4096, "warps": 8, "shares": 264}
"""The numbers that are taken at once, in whole rows, and about how many programs share the rows: on the way
back few enough for sums that are quickly added up."""


@triton.jit
def _kept(row, column, width, first, second, dropped):  # type: ignore[no-untyped-def]
    """`fused.kept`, of some rows and columns."""
    bits = (row[:, None] * width + column[None, :] + first).to(tl.uint32, bitcast=True)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D ^ second.to(tl.uint32, bitcast=True)
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    bits = bits ^ (bits >> 16)
    return bits.to(tl.int32, bitcast=True) >= dropped


@triton.jit
def _residual(x, y, shift, kept, enlarge):  # type: ignore[no-untyped-def]
    """x + dropout(y + b)."""
    other = y.to(tl.float32)
    if shift is not None:
        other += shift[None, :]
    if kept is not None:
        other = tl.where(kept, other, 0.0) * enlarge
    return x.to(tl.float32) + other


@triton.jit(do_not_specialize=["rows", "repeats", "dropped"])
def _add_norm(  # type: ignore[no-untyped-def]
    x, y, shift, weight, bias, seeds, out, means, scales, rows, width, repeats, eps, dropped, enlarge,
    block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, block_w)
    known = column < width
    gain = tl.load(weight + column, mask=known, other=0.0).to(tl.float32)[None, :]
    level = tl.load(bias + column, mask=known, other=0.0).to(tl.float32)[None, :]
    own = None if shift is None else tl.load(shift + column, mask=known, other=0.0).to(tl.float32)
    one = None if seeds is None else tl.load(seeds)
    two = None if seeds is None else tl.load(seeds + 1)
    for number in range(repeats):
        row = (tl.program_id(0) * repeats + number) * block_n + tl.arange(0, block_n)
        inside = (row < rows)[:, None] & known[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        a, b = tl.load(x + place, mask=inside, other=0.0), tl.load(y + place, mask=inside, other=0.0)
        kept = None if seeds is None else _kept(row, column, width, one, two, dropped)
        total = _residual(a, b, own, kept, enlarge)  # 0 beyond the width
        mean = tl.sum(total, axis=1) / width
        centred = tl.where(known[None, :], total - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / width + eps)
        result = centred * scale[:, None] * gain + level
        tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)
        tl.store(means + row, mean, mask=row < rows)
        tl.store(scales + row, scale, mask=row < rows)


@triton.jit
def _fetched(gradient, x, y, means, scales, row, column, width, end):  # type: ignore[no-untyped-def]
    """What the way back reads of some rows; 0 from the end on."""
    there = row < end
    inside = there[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    g = tl.load(gradient + place, mask=inside, other=0.0)
    a, b = tl.load(x + place, mask=inside, other=0.0), tl.load(y + place, mask=inside, other=0.0)
    return g, a, b, tl.load(means + row, mask=there, other=0.0), tl.load(scales + row, mask=there, other=0.0)


@triton.jit(do_not_specialize=["rows", "repeats", "dropped"])
def _add_norm_back(  # type: ignore[no-untyped-def]
    gradient, x, y, shift, weight, seeds, means, scales, on_x, on_y, sums,
    rows, width, repeats, dropped, enlarge, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, block_w)
    known = column < width
    gain = tl.load(weight + column, mask=known, other=0.0).to(tl.float32)[None, :]
    own = None if shift is None else tl.load(shift + column, mask=known, other=0.0).to(tl.float32)
    one = None if seeds is None else tl.load(seeds)
    two = None if seeds is None else tl.load(seeds + 1)
    on_weight = tl.zeros((block_n, block_w), tl.float32)
    on_bias = tl.zeros((block_n, block_w), tl.float32)
    on_shift = tl.zeros((block_n, block_w), tl.float32)
    first = tl.program_id(0) * repeats * block_n
    end = tl.minimum(first + repeats * block_n, rows)
    row = first + tl.arange(0, block_n)
    next_g, next_a, next_b, next_mean, next_scale = _fetched(
        gradient, x, y, means, scales, row, column, width, end
    )
    for _ in range(repeats):
        g, a, b, mean, scale = next_g.to(tl.float32), next_a, next_b, next_mean[:, None], next_scale[:, None]
        # The next rows are on their way while these are computed.
        next_g, next_a, next_b, next_mean, next_scale = _fetched(
            gradient, x, y, means, scales, row + block_n, column, width, end
        )
        kept = None if seeds is None else _kept(row, column, width, one, two, dropped)
        normed = (_residual(a, b, own, kept, enlarge) - mean) * scale
        pull = g * gain  # 0 beyond the width
        straight, along = tl.sum(pull, axis=1) / width, tl.sum(pull * normed, axis=1) / width
        step = (pull - straight[:, None] - normed * along[:, None]) * scale
        inside = (row < end)[:, None] & known[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(on_x + place, step.to(on_x.dtype.element_ty), mask=inside)
        if kept is not None:
            step = tl.where(kept, step, 0.0) * enlarge
        if on_y is not None:
            tl.store(on_y + place, step.to(on_y.dtype.element_ty), mask=inside)
        if shift is not None:
            on_shift += step
        on_weight += g * normed
        on_bias += g
        row += block_n
    share = sums + tl.program_id(0).to(tl.int64) * (2 * width if shift is None else 3 * width) + column
    tl.store(share, tl.sum(on_weight, axis=0), mask=known)
    tl.store(share + width, tl.sum(on_bias, axis=0), mask=known)
    if shift is not None:
        tl.store(share + 2 * width, tl.sum(on_shift, axis=0), mask=known)


@dataclass(frozen=True)
class Dropout:
    """How much is dropped, and the two seeds (int32, on the device) of what `fused.kept` keeps."""

    rate: float
    seeds: Tensor | None  # none where nothing is dropped

    @property
    def dropped(self) -> int:
        """The first of the 2³² numbers, counted from −2³¹, that is kept."""
        return round(self.rate * 2**32) - 2**31

    @property
    def enlarge(self) -> float:
        return 1 / (1 - self.rate)


def add_norm(
    x: Tensor,
    y: Tensor,
    shift: Tensor | None,
    *,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    dropout: Dropout,
    dtype: torch.dtype,
) -> Tensor:
    """LayerNorm(x + dropout(y + shift)) over the last dimension, as the dtype; the shift (W,) is a bias."""
    assert x.shape == y.shape
    with torch.cuda.device_of(x):
        out: Tensor = _AddNorm.apply(x, y, shift, weight, bias, eps, dropout, dtype)
        return out


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        shift: Tensor | None,
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
        repeats, shares = shared(rows, tile, FORWARD["shares"])
        _add_norm[(shares,)](
            x, y, shift, weight, bias, dropout.seeds, out, means, scales,
            rows, width, repeats, eps, dropout.dropped, dropout.enlarge, **options,
        )  # fmt: skip
        ctx.save_for_backward(x, y, shift, weight, means, scales)
        ctx.dropout, ctx.bias_type = dropout, bias.dtype
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, y, shift, weight, means, scales = ctx.saved_tensors
        dropout, width = ctx.dropout, x.shape[-1]
        rows, (tile, options) = len(means), _tile(width, BACK)
        on_x = torch.empty_like(x)
        same = dropout.seeds is None and x.dtype == y.dtype  # what x is told, y is told, too
        on_y = None if same else torch.empty_like(y)
        repeats, shares = shared(rows, tile, BACK["shares"])
        sums = torch.empty(shares, (2 if shift is None else 3) * width, dtype=torch.float32, device=x.device)
        _add_norm_back[(shares,)](
            gradient.contiguous(), x, y, shift, weight, dropout.seeds, means, scales, on_x, on_y, sums,
            rows, width, repeats, dropout.dropped, dropout.enlarge, **options,
        )  # fmt: skip
        on_weight, on_bias, *on_shift = column_sums(sums).split(width)
        return (
            on_x,
            on_x if on_y is None else on_y,
            on_shift[0].to(shift.dtype) if on_shift else None,
            on_weight.to(weight.dtype),
            on_bias.to(ctx.bias_type),
            *(None,) * 3,
        )


def _tile(width: int, sizes: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """How many rows of the width a tile has, and what its kernel is compiled for."""
    block = triton.next_power_of_2(width)
    rows = max(1, sizes["numbers"] // block)
    return rows, {"block_n": rows, "block_w": block, "num_warps": sizes["warps"]}
