"""What follows a product adds its bias, in training on a GPU; in Triton, imported only where it runs.

    activated   a = f(x + b), f ReLU or GELU
    add_norm    LayerNorm(x + dropout(y + b))

A bias costs nothing there, and its gradient, the sum of all rows, is added up where the gradient of the sum
x + b is written: nobody has to read that once more. Each program sums its share of the rows in float32, and
`kernels.column_sums` the shares, always in the same order, so that the same numbers give the same bits. The way
back computes again from what came in: the activation's slope, the dropout's mask, the normalised sum.

GELU needs Φ(x); with t = 1 / (1 + p·|x|/√2), Φ(−|x|) ≈ ½·(a₁t + … + a₅t⁵)·e^(−x²/2) (Abramowitz and Stegun,
7.1.26) is off by less than 1e-7, and its exponential is the one that the slope Φ(x) + x·φ(x) needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from noise2text.networks.kernels import column_sums

__all__ = ["WIDEST", "activated", "add_norm"]

WIDEST = 1024
"""The widest row that is normalised in one piece."""

ACTIVATED = {"rows": 8, "columns": 256, "warps": 4}
ACTIVATED_BACK = {"rows": 8, "columns": 256, "warps": 4, "shares": 128}
"""The tiles of an activation and of its way back, and about how many programs share the rows there."""

NORMED = {"numbers": 2048, "warps": 8, "shares": 2048}
NORMED_BACK = {"numbers": 2048, "warps": 8, "shares": 512}
"""The numbers that a norm takes at once, in whole rows, and about how many programs share the rows: on the way
back few enough for sums that are quickly added up."""


@triton.jit
def _tail(x):  # type: ignore[no-untyped-def]
    """Φ(−|x|), and e^(−x²/2)."""
    fall = tl.exp2(x * x * -0.7213475204444817)
    far = 1.0 + 0.3275911 * 0.7071067811865476 * tl.abs(x)
    t = tl.rsqrt(far * far)  # 1 / far, in fewer instructions
    series = 0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)))
    return t * series * fall, fall


@triton.jit
def _gelu(x):  # type: ignore[no-untyped-def]
    below, _ = _tail(x)
    return x * tl.where(x < 0.0, below, 1.0 - below)


@triton.jit
def _gelu_slope(x):  # type: ignore[no-untyped-def]
    below, fall = _tail(x)
    return tl.where(x < 0.0, below, 1.0 - below) + x * fall * 0.3989422804014327


@triton.jit
def _relu(x):  # type: ignore[no-untyped-def]
    return tl.where(x < 0.0, 0.0, x)


@triton.jit
def _relu_slope(x):  # type: ignore[no-untyped-def]
    return tl.where(x > 0.0, 1.0, 0.0)


@triton.jit(do_not_specialize=["rows"])
def _activated(  # type: ignore[no-untyped-def]
    x, shift, out, rows, width, function: tl.constexpr, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * block_w + tl.arange(0, block_w)
    row = tl.program_id(1) * block_n + tl.arange(0, block_n)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(shift + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    tl.store(out + place, function(total).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "repeats"])
def _activated_back(  # type: ignore[no-untyped-def]
    gradient, x, shift, on_x, sums, rows, width, repeats,
    slope: tl.constexpr, block_n: tl.constexpr, block_w: tl.constexpr,
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
        g *= slope(total)
        tl.store(on_x + place, g.to(on_x.dtype.element_ty), mask=inside)
        summed += g
    tl.store(sums + tl.program_id(1) * width + column, tl.sum(summed, axis=0), mask=column < width)


_FUNCTIONS = {"relu": (_relu, _relu_slope), "gelu": (_gelu, _gelu_slope)}


def activated(name: str, x: Tensor, shift: Tensor) -> Tensor:
    """f(x + shift) for the activation of this name, relu or gelu, in x's type; the shift (W,) is a bias."""
    with torch.cuda.device_of(x):
        out: Tensor = _Activated.apply(x, shift, name)
        return out


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: Tensor, name: str) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, shift)
        ctx.name = name
        out, width = torch.empty_like(x), x.shape[-1]
        rows, tile = x.numel() // width, ACTIVATED
        grid = triton.cdiv(width, tile["columns"]), triton.cdiv(rows, tile["rows"])
        _activated[grid](
            x, shift, out, rows, width, function=_FUNCTIONS[name][0],
            block_n=tile["rows"], block_w=tile["columns"], num_warps=tile["warps"],
        )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, shift = ctx.saved_tensors
        gradient, on_x, width = gradient.contiguous(), torch.empty_like(x), x.shape[-1]
        rows, tile = x.numel() // width, ACTIVATED_BACK
        repeats, shares = _shared(rows, tile["rows"], tile["shares"])
        sums = torch.empty(shares, width, dtype=torch.float32, device=x.device)
        _activated_back[(triton.cdiv(width, tile["columns"]), shares)](
            gradient, x, shift, on_x, sums, rows, width, repeats, slope=_FUNCTIONS[ctx.name][1],
            block_n=tile["rows"], block_w=tile["columns"], num_warps=tile["warps"],
        )  # fmt: skip
        return on_x, column_sums(sums).to(shift.dtype), None


@triton.jit
def _kept(row, column, width, seeds, dropped):  # type: ignore[no-untyped-def]
    """`fused.kept`, of some rows and columns."""
    first, second = tl.load(seeds).to(tl.uint32, bitcast=True), tl.load(seeds + 1).to(tl.uint32, bitcast=True)
    bits = (row[:, None] * width + column[None, :]).to(tl.uint32, bitcast=True) + first
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D ^ second
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    bits = bits ^ (bits >> 16)
    return bits.to(tl.int32, bitcast=True) >= dropped


@triton.jit
def _residual(x, y, bias, place, inside, row, column, width, seeds, dropped, enlarge):  # type: ignore[no-untyped-def]
    """x + dropout(y + b) of a tile, and what dropout multiplies by."""
    other = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    if bias is not None:
        other += bias[None, :]
    factor = 1.0
    if seeds is not None:
        factor = tl.where(_kept(row, column, width, seeds, dropped), enlarge, 0.0)
        other = tl.where(factor > 0.0, other * enlarge, 0.0)
    return tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + other, factor


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
    for number in range(repeats):
        row = (tl.program_id(0) * repeats + number) * block_n + tl.arange(0, block_n)
        inside = (row < rows)[:, None] & known[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        total, _ = _residual(x, y, own, place, inside, row, column, width, seeds, dropped, enlarge)
        mean = tl.sum(tl.where(inside, total, 0.0), axis=1) / width
        centred = tl.where(inside, total - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / width + eps)
        result = centred * scale[:, None] * gain + level
        tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)
        tl.store(means + row, mean, mask=row < rows)
        tl.store(scales + row, scale, mask=row < rows)


@triton.jit(do_not_specialize=["rows", "repeats", "dropped"])
def _add_norm_back(  # type: ignore[no-untyped-def]
    gradient, x, y, shift, weight, seeds, means, scales, on_x, on_y, sums,
    rows, width, repeats, dropped, enlarge, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, block_w)
    known = column < width
    gain = tl.load(weight + column, mask=known, other=0.0).to(tl.float32)[None, :]
    own = None if shift is None else tl.load(shift + column, mask=known, other=0.0).to(tl.float32)
    on_weight = tl.zeros((block_n, block_w), tl.float32)
    on_bias = tl.zeros((block_n, block_w), tl.float32)
    on_shift = tl.zeros((block_n, block_w), tl.float32)
    for number in range(repeats):
        row = (tl.program_id(0) * repeats + number) * block_n + tl.arange(0, block_n)
        inside = (row < rows)[:, None] & known[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        total, factor = _residual(x, y, own, place, inside, row, column, width, seeds, dropped, enlarge)
        mean = tl.load(means + row, mask=row < rows, other=0.0)[:, None]
        scale = tl.load(scales + row, mask=row < rows, other=0.0)[:, None]
        normed = (total - mean) * scale
        pull = g * gain  # 0 outside
        straight, along = tl.sum(pull, axis=1) / width, tl.sum(pull * normed, axis=1) / width
        step = tl.where(inside, (pull - straight[:, None] - normed * along[:, None]) * scale, 0.0)
        tl.store(on_x + place, step.to(on_x.dtype.element_ty), mask=inside)
        on_weight += g * normed
        on_bias += g
        if on_y is not None:
            step *= factor
            tl.store(on_y + place, step.to(on_y.dtype.element_ty), mask=inside)
        if shift is not None:
            on_shift += step
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
    assert x.shape[-1] <= WIDEST
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
        rows, (tile, options) = x.numel() // width, _tile(width, NORMED)
        means, scales = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        out = torch.empty_like(x, dtype=dtype)
        repeats, shares = _shared(rows, tile, NORMED["shares"])
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
        rows, (tile, options) = len(means), _tile(width, NORMED_BACK)
        on_x = torch.empty_like(x)
        same = dropout.seeds is None and x.dtype == y.dtype  # what x is told, y is told, too
        on_y = None if same else torch.empty_like(y)
        repeats, shares = _shared(rows, tile, NORMED_BACK["shares"])
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


def _shared(rows: int, tile: int, shares: int) -> tuple[int, int]:
    """How many tiles of rows each program takes, and how many programs that makes, about so many."""
    repeats = triton.cdiv(triton.cdiv(rows, tile), shares)
    return repeats, triton.cdiv(rows, repeats * tile)
