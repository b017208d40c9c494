"""GPU kernels in Triton, which comes with torch's CUDA builds; imported only where they run.

`add_norm` adds a residual and normalises. That is memory-bound, and one kernel moves half as much as two.
`attend` is attention to few keys, which fit into one tile: there is no loop over blocks of keys, heads are
read in place, and padding is read as it is. `column_sums` sums blocks of rows and then their sums, always in
the same order, so that the same numbers give the same bits; `concat_with_column_sums` does so while it
concatenates.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["add_norm", "attend", "column_sums", "concat_with_column_sums", "split_rows"]

SUM_ROWS, SUM_TILES, SUM_COLUMNS = 64, 4, 128
"""A program sums tiles of this many rows, this many tiles, and this many columns: enough loads to hide the
latency of each."""

FEW_ROWS = 1024
LAST_SUM_ROWS, LAST_SUM_COLUMNS = 256, 16
"""This few rows are summed by one program, over fewer columns, so that there are enough programs."""

CONCAT_TILE = {"rows": 16, "columns": 256, "warps": 4, "shares": 256}
"""The tile of a concatenation, and about how many programs share its rows."""


@triton.jit
def _add_norm_kernel(x, y, weight, bias, out, width, others, eps, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * width
    other = (tl.program_id(0) % others).to(tl.int64) * width
    column = tl.arange(0, block)
    inside = column < width
    a = tl.load(x + row + column, mask=inside, other=0.0)
    b = tl.load(y + other + column, mask=inside, other=0.0)
    rounded_sum = (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype)  # as a separate addition would round
    total = rounded_sum.to(tl.float32)
    centered = tl.where(inside, total - tl.sum(total, axis=0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(centered * centered, axis=0) / width + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + column, (centered * scale * gain + shift).to(a.dtype), mask=inside)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """LayerNorm(x + y) over the last dimension; y may lack the first dimension of x."""
    x, y = x.contiguous(), y.contiguous()
    out, width = torch.empty_like(x), x.shape[-1]
    rows, others = (tensor.numel() // width for tensor in (x, y))
    block = triton.next_power_of_2(width)
    _add_norm_kernel[(rows,)](x, y, weight, bias, out, width, others, eps, block=block, num_warps=4)
    return out


@triton.jit(do_not_specialize=["queries", "keys", "hidden_row"])
def _attention_kernel(  # type: ignore[no-untyped-def]
    q, k, v, hidden, out, queries, keys, scale,
    q_row, q_head, q_place, k_row, k_head, k_place, v_row, v_head, v_place, hidden_row, out_row, out_place,
    heads: tl.constexpr, dim: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    at = tl.program_id(1) * block_q + tl.arange(0, block_q)
    other, channel = tl.arange(0, block_k), tl.arange(0, dim)
    is_query, is_key = (at < queries)[:, None], other < keys
    ours = tl.load(
        q + row * q_row + head * q_head + at[:, None] * q_place + channel, mask=is_query, other=0.0
    )
    theirs = tl.load(
        k + row * k_row + head * k_head + other[:, None] * k_place + channel, mask=is_key[:, None], other=0.0
    )
    values = tl.load(
        v + row * v_row + head * v_head + other[:, None] * v_place + channel, mask=is_key[:, None], other=0.0
    )
    visible = tl.load(hidden + row * hidden_row + other, mask=is_key, other=1) == 0
    scores = tl.where(visible[None, :], tl.dot(ours, tl.trans(theirs)) * scale, -1e30)
    exponentials = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    weights = exponentials / tl.sum(exponentials, axis=1)[:, None]
    result = tl.dot(weights.to(values.dtype), values)
    place = out + row * out_row + at[:, None] * out_place + head * dim + channel
    tl.store(place, result.to(ours.dtype), mask=is_query)


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """softmax(q·kᵀ / √d)·v for heads (B, H, L, d), as (B, L, H·d); non-zero bytes (B, 1, 1, S) hide keys."""
    rows, heads, queries, dim = q.shape
    keys = k.shape[2]
    assert {x.stride(-1) for x in (q, k, v, hidden)} == {1}
    assert len(hidden) == rows
    out = q.new_empty(rows, queries, heads * dim)
    block_q = min(64, max(16, triton.next_power_of_2(queries)))
    block_k = max(16, triton.next_power_of_2(keys))
    _attention_kernel[(rows * heads, triton.cdiv(queries, block_q))](
        q, k, v, hidden, out, queries, keys, dim**-0.5,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], hidden.stride(0), *out.stride()[:2],
        heads=heads, dim=dim, block_q=block_q, block_k=block_k, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _column_sums_kernel(  # type: ignore[no-untyped-def]
    x, out, rows, width, step,
    tiles_per_program: tl.constexpr, block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * block_w + tl.arange(0, block_w)
    first = tl.program_id(1) * (tiles_per_program * block_n)
    total = tl.zeros((block_n, block_w), tl.float32)
    for number in range(tiles_per_program):
        row = first + number * block_n + tl.arange(0, block_n)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        total += tl.load(x + row.to(tl.int64)[:, None] * step + column[None, :], mask=inside, other=0.0)
    tl.store(out + tl.program_id(1) * width + column, tl.sum(total, axis=0), mask=column < width)


def column_sums(x: Tensor) -> Tensor:
    """The sum of all rows (N, W), in float32."""
    x = x if x.stride(1) == 1 else x.contiguous()
    rows, width = x.shape
    last = rows <= FEW_ROWS
    block_n, block_w = (LAST_SUM_ROWS, LAST_SUM_COLUMNS) if last else (SUM_ROWS, SUM_COLUMNS)
    tiles_per_program = triton.cdiv(rows, block_n) if last else SUM_TILES
    blocks = triton.cdiv(rows, block_n * tiles_per_program)
    out = torch.empty(blocks, width, dtype=torch.float32, device=x.device)
    _column_sums_kernel[(triton.cdiv(width, block_w), blocks)](
        x,
        out,
        rows,
        width,
        x.stride(0),
        tiles_per_program=tiles_per_program,
        block_n=block_n,
        block_w=block_w,
        num_warps=4,
    )
    return out[0] if blocks == 1 else column_sums(out)


@triton.jit(do_not_specialize=["rows", "tiles_per_program"])
def _concat_column_sums_kernel(  # type: ignore[no-untyped-def]
    one, two, three, out, sums, rows, width, step_one, step_two, step_three, tiles_per_program,
    block_n: tl.constexpr, block_w: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(1)
    column = tl.program_id(0) * block_w + tl.arange(0, block_w)
    source, step = one, step_one
    if part == 1:
        source, step = two, step_two
    elif part == 2:
        source, step = three, step_three
    total = tl.zeros((block_n, block_w), tl.float32)
    for number in range(tiles_per_program):
        row = (tl.program_id(2) * tiles_per_program + number) * block_n + tl.arange(0, block_n)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        taken = tl.load(source + row.to(tl.int64)[:, None] * step + column[None, :], mask=inside, other=0.0)
        place = row.to(tl.int64)[:, None] * (3 * width) + part * width + column[None, :]
        tl.store(out + place, taken, mask=inside)
        total += taken.to(tl.float32)
    share = sums + (tl.program_id(2) * 3 + part) * width + column
    tl.store(share, tl.sum(total, axis=0), mask=column < width)


def concat_with_column_sums(one: Tensor, two: Tensor, three: Tensor) -> tuple[Tensor, Tensor]:
    """Three matrices (N, W) as one (N, 3·W), and the sum of its rows, in float32."""
    parts = [part if part.stride(1) == 1 else part.contiguous() for part in (one, two, three)]
    rows, width = one.shape
    out = one.new_empty(rows, 3 * width)
    tiles_per_program, programs = split_rows(rows, CONCAT_TILE["rows"], CONCAT_TILE["shares"])
    sums = torch.empty(programs, 3 * width, dtype=torch.float32, device=one.device)
    _concat_column_sums_kernel[(triton.cdiv(width, CONCAT_TILE["columns"]), 3, programs)](
        *parts, out, sums, rows, width, *(part.stride(0) for part in parts), tiles_per_program,
        block_n=CONCAT_TILE["rows"], block_w=CONCAT_TILE["columns"], num_warps=CONCAT_TILE["warps"],
    )  # fmt: skip
    return out, column_sums(sums)


def split_rows(rows: int, tile: int, programs: int) -> tuple[int, int]:
    """How many tiles of rows each program takes, and the number of programs, at most `programs`."""
    tiles_per_program = triton.cdiv(triton.cdiv(rows, tile), programs)
    return tiles_per_program, triton.cdiv(rows, tiles_per_program * tile)
