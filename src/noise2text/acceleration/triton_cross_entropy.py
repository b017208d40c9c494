"""Cross-entropy over a vocabulary without writing its logits; in Triton, imported only where it runs.

    s = log Σ_w exp(x·W_w + b_w),    nll = s − (x·W_y + b_y),    mean = s − (x·W̄ + b̄)

One pass over blocks of the vocabulary keeps, for a block of rows, a running maximum and a running sum, as
attention in tiles does (Milakov and Gimelshein, 2018; Dao et al., 2022; for losses Wijmans et al., 2025). It
also keeps Σ p_w·W_w, because both gradients for x are this minus a known vector, W_y or W̄: the backward pass
needs no further product for x. For W and b it computes one, block by block of the vocabulary, with

    ∂/∂logit_w = (g₁ + g₂)·p_w − g₁·[w = y] − g₂/V,

whose last part is the same for all words and is subtracted at the end. A tile of rows and words without a
right word in which every p_w is below e^−28 is skipped, here and in the backward pass: float32 does not
resolve even the sum of tens of thousands of them. Nothing is added atomically, so the same numbers always
give the same bits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from noise2text.acceleration.triton_generation import column_sums

__all__ = ["nll_and_mean"]

NEGLIGIBLE = 28.0
"""A word is skipped if its logit is lower than the largest by more than this."""

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _load_vectors(matrix, row, there, dim: tl.constexpr, block_d: tl.constexpr):  # type: ignore[no-untyped-def]
    channel = tl.arange(0, block_d)
    inside = there[:, None] & (channel < dim)[None, :]
    return tl.load(matrix + row[:, None] * dim + channel[None, :], mask=inside, other=0.0)


@triton.jit
def _exp(x):  # type: ignore[no-untyped-def]
    return tl.exp2(x * LOG2E)  # half of the instructions of tl.exp, which does not flush the smallest numbers


@triton.jit(do_not_specialize=["rows"])
def _vocabulary_nll_kernel(  # type: ignore[no-untyped-def]
    x, table, shifts, tokens, center, level, nll_out, mean, log_sum_exp, grad_x_nll, grad_x_mean, visited,
    rows, vocabulary,
    needs_grad: tl.constexpr, negligible: tl.constexpr, dim: tl.constexpr,
    block_d: tl.constexpr, block_n: tl.constexpr, block_v: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    row = block * block_n + tl.arange(0, block_n)
    there = row < rows
    states = _load_vectors(x, row.to(tl.int64), there, dim, block_d)
    token = tl.load(tokens + row, mask=there, other=-1).to(tl.int32)
    is_token = (token >= 0) & (token < vocabulary)
    target_logit = tl.sum(
        states.to(tl.float32) * _load_vectors(table, token, is_token, dim, block_d).to(tl.float32), axis=1
    )
    target_logit += tl.load(shifts + token, mask=is_token, other=0.0)
    # The right word is probably the most likely one, so its logit shows from the start what is negligible. We
    # start a little below it, so that the maximum is a product of the loop, as in the backward pass.
    running_max = tl.where(is_token, target_logit - 1.0, -float("inf"))
    total = tl.zeros((block_n,), tl.float32)
    weighted_rows = tl.zeros((block_n, block_d), tl.float32)
    shift = tl.load(shifts + tl.arange(0, block_v))
    for start in range(0, vocabulary, block_v):
        word = start + tl.arange(0, block_v)
        weights = _load_vectors(table, word, word < vocabulary, dim, block_d)
        logits = tl.dot(states, tl.trans(weights), input_precision="ieee") + shift[None, :]
        shift = tl.load(shifts + word + block_v)  # of the next block, which the compiler would not prefetch
        highest = tl.max(logits, axis=1)
        here = (token >= start) & (token < start + block_v)
        above = tl.where(here, 0.0, tl.where(there, highest - running_max, -float("inf")))
        matters = tl.max(above, axis=0) > -negligible
        if needs_grad:
            tl.store(visited + (start // block_v) * tl.num_programs(0) + block, matters.to(tl.int8))
        if matters:
            higher = tl.maximum(running_max, highest)
            shares = _exp(logits - higher[:, None])
            rescale = _exp(running_max - higher)
            total = total * rescale + tl.sum(shares, axis=1)
            if needs_grad:
                rescaled_rows = weighted_rows * rescale[:, None]
                weighted_rows = tl.dot(
                    shares.to(weights.dtype), weights, rescaled_rows, input_precision="ieee"
                )
            running_max = higher
    log_sum = running_max + tl.log(total)
    channel = tl.arange(0, block_d)
    middle = tl.load(center + channel, mask=channel < dim, other=0.0)[None, :]
    average = tl.sum(states.to(tl.float32) * middle, axis=1)
    if level is not None:
        average += tl.load(level)
    nll = log_sum - target_logit
    nll = tl.where(nll < 0.0, 0.0, nll)  # two products may be rounded apart; NaN stays NaN
    tl.store(nll_out + row, nll, mask=there)
    tl.store(mean + row, log_sum - average, mask=there)
    if needs_grad:
        tl.store(log_sum_exp + row, log_sum, mask=there)
        expected = weighted_rows / total[:, None]
        again = tl.load(
            tokens + row, mask=is_token, other=0
        )  # loaded again, to free registers during the loop
        wanted = _load_vectors(table, again, is_token, dim, block_d).to(tl.float32)
        place = row.to(tl.int64)[:, None] * dim + channel[None, :]
        inside = there[:, None] & (channel < dim)[None, :]
        tl.store(grad_x_nll + place, (expected - wanted).to(states.dtype), mask=inside)
        tl.store(grad_x_mean + place, (expected - middle).to(states.dtype), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _vocabulary_backward_kernel(  # type: ignore[no-untyped-def]
    x, table, shifts, tokens, log_sum_exp, grad_nll, grad_total, counts, order, spread, level,
    grad_table, grad_bias, rows, vocabulary, row_blocks,
    parts: tl.constexpr, pieces: tl.constexpr, dim: tl.constexpr,
    block_d: tl.constexpr, block_n: tl.constexpr, block_v: tl.constexpr,
):  # fmt: skip
    # A tile of the forward pass is split into parts of its rows, and pieces of its words, one program each.
    block = tl.program_id(0)
    word = block * block_v + tl.arange(0, block_v)
    known = word < vocabulary
    weights, shift = _load_vectors(table, word, known, dim, block_d), tl.load(shifts + word)
    gathered = tl.zeros((block_v, block_d), tl.float32)
    summed = tl.zeros((block_v,), tl.float32)
    above = block // pieces
    for number in range(tl.load(counts + above) * parts):
        first = (tl.load(order + above * row_blocks + number // parts) * parts + number % parts) * block_n
        row = first + tl.arange(0, block_n)
        there = row < rows
        states = _load_vectors(x, row.to(tl.int64), there, dim, block_d)
        log_sum = tl.load(log_sum_exp + row, mask=there, other=float("inf"))
        token = tl.load(tokens + row, mask=there, other=-1).to(tl.int32)
        one = tl.load(grad_nll + row, mask=there, other=0.0)
        both = one if grad_total is None else tl.load(grad_total + row, mask=there, other=0.0)
        logits = tl.dot(weights, tl.trans(states), input_precision="ieee") + shift[:, None]
        gradient = _exp(logits - log_sum[None, :]) * both[None, :]
        gradient = tl.where(word[:, None] == token[None, :], gradient - one[None, :], gradient)
        gathered = tl.dot(gradient.to(states.dtype), states, gathered, input_precision="ieee")
        if grad_bias is not None:
            summed += tl.sum(gradient, axis=1)
    channel = tl.arange(0, block_d)
    if spread is not None:
        gathered -= tl.load(spread + channel, mask=channel < dim, other=0.0)[None, :]
        if grad_bias is not None:
            summed -= tl.load(level)
    place = word[:, None] * dim + channel[None, :]
    tl.store(grad_table + place, gathered, mask=known[:, None] & (channel < dim)[None, :])
    if grad_bias is not None:
        tl.store(grad_bias + word, summed, mask=known)


@dataclass(frozen=True)
class _Tiles:
    """How many rows and words a tile has, and how many warps and pipeline stages compute it."""

    rows: int
    words: int
    warps: int
    stages: int


@dataclass(frozen=True)
class _TilePlan:
    """The tiles of each kernel; those of the backward pass divide those of the forward pass."""

    training: _Tiles
    evaluation: _Tiles  # forward without gradients
    backward_tiles: _Tiles


@functools.cache
def _tile_plan(channels: int, device: torch.device) -> _TilePlan:
    """The tiles for this many channels, a power of two; their sums have to fit into registers."""
    if device.type != "cuda":
        return _TilePlan(_Tiles(32, 32, 4, 1), _Tiles(32, 32, 4, 1), _Tiles(16, 16, 4, 1))
    if torch.cuda.get_device_capability(device)[0] not in (9, 10):  # less shared memory
        size = 64 if channels <= 64 else 32
        return _TilePlan(_Tiles(size, size, 4, 2), _Tiles(size, size, 4, 2), _Tiles(32, size, 4, 2))
    if channels > 128:
        return _TilePlan(_Tiles(64, 64, 8, 3), _Tiles(64, 64, 8, 3), _Tiles(64, 64, 8, 3))
    return _TilePlan(_Tiles(128, 128, 8, 3), _Tiles(128, 128, 8, 3), _Tiles(64, 128, 8, 3))


@dataclass(frozen=True)
class _Operands:
    """The factors of the product over the vocabulary, in the dtype of the product."""

    x: Tensor  # (N, D)
    table: Tensor  # (V, D)
    bias: Tensor | None  # (V,), in float32
    tokens: Tensor  # (N,)

    @property
    def channels(self) -> int:
        """D, rounded up to a size that a tile can have."""
        return max(16, int(triton.next_power_of_2(self.x.shape[1])))

    @property
    def plan(self) -> _TilePlan:
        return _tile_plan(self.channels, self.x.device)

    def blocks(self, tiles: _Tiles) -> tuple[int, int]:
        """The number of blocks of rows and of words."""
        return triton.cdiv(len(self.x), tiles.rows), triton.cdiv(len(self.table), tiles.words)

    def shifts(self, tiles: _Tiles) -> Tensor:
        """The bias, or zeros, and −∞ beyond the vocabulary, up to one block more than there are."""
        words = len(self.table)
        bias = self.x.new_zeros(words, dtype=torch.float32) if self.bias is None else self.bias
        return pad(bias, (0, (self.blocks(tiles)[1] + 1) * tiles.words - words), value=-torch.inf)

    def options(self, tiles: _Tiles) -> dict[str, int]:
        """The compile-time options of a kernel."""
        sizes = {"block_d": self.channels, "block_n": tiles.rows, "block_v": tiles.words}
        return sizes | {"dim": self.x.shape[1], "num_warps": tiles.warps, "num_stages": tiles.stages}


@dataclass(frozen=True)
class _Saved:
    """What the backward pass needs of the forward pass."""

    log_sum_exp: Tensor  # (N,), log Σ exp
    grad_x_nll: Tensor  # (N, D), the gradient of nll for x
    grad_x_mean: Tensor  # (N, D), the gradient of the mean for x
    visited: Tensor  # (blocks of words, blocks of rows), which of the tiles are not skipped


def nll_and_mean(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, tokens: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """−log p at the tokens (N,) and its mean over the vocabulary, of logits x (N, D) · weightᵀ (V, D) + bias.

    Factors are rounded to the dtype, sums are in float32, gradients have the dtypes of the arguments.
    """
    assert weight.numel() < 2**31
    saved = [tensor for tensor in (x, weight, bias) if tensor is not None and tensor.requires_grad]
    with torch.cuda.device_of(x):
        if saved and torch.is_grad_enabled():
            out: tuple[Tensor, Tensor] = _NllAndMean.apply(x, weight, bias, tokens, dtype)
            return out
        return _forward(_operands(x, weight, bias, tokens, dtype), needs_grad=False)[:2]


def _operands(
    x: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, dtype: torch.dtype
) -> _Operands:
    shift = None if bias is None else bias.detach().float().contiguous()
    factors = [tensor.detach().to(dtype).contiguous() for tensor in (x, weight)]
    return _Operands(factors[0], factors[1], shift, tokens.contiguous())


def _forward(operands: _Operands, *, needs_grad: bool) -> tuple[Tensor, Tensor, _Saved | None]:
    x, table, bias, words = operands.x, operands.table, operands.bias, len(operands.table)
    tiles = operands.plan.training if needs_grad else operands.plan.evaluation
    blocks, word_blocks = operands.blocks(tiles)
    nll_out, mean = (torch.empty(len(x), dtype=torch.float32, device=x.device) for _ in range(2))
    saved = None
    if needs_grad:
        visited = torch.empty(word_blocks, blocks, dtype=torch.int8, device=x.device)
        saved = _Saved(torch.empty_like(nll_out), torch.empty_like(x), torch.empty_like(x), visited)
    kept = (saved.log_sum_exp, saved.grad_x_nll, saved.grad_x_mean, saved.visited) if saved else (None,) * 4
    level = None if bias is None else bias.mean()
    _vocabulary_nll_kernel[(blocks,)](
        x, table, operands.shifts(tiles), operands.tokens, column_sums(table) / words, level, nll_out, mean,
        *kept, len(x), words, needs_grad=needs_grad, negligible=NEGLIGIBLE, **operands.options(tiles),
    )  # fmt: skip
    return nll_out, mean, saved


def _backward(
    operands: _Operands, saved: _Saved, grad_nll: Tensor, grad_mean_nll: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The gradients for the table and the bias, in float32."""
    table, bias, words = operands.table, operands.bias, len(operands.table)
    grad_total = spread = level = None
    if grad_mean_nll is not None:
        grad_total = grad_nll + grad_mean_nll
        spread = column_sums(grad_mean_nll[:, None] * operands.x) / words
        level = grad_mean_nll.sum() / words
    grad_table = torch.empty_like(table, dtype=torch.float32)
    grad_bias = None if bias is None else torch.empty_like(bias)
    tiles, forward = operands.plan.backward_tiles, operands.plan.training
    counts = saved.visited.sum(1, dtype=torch.int32)
    order = saved.visited.argsort(dim=1, descending=True, stable=True).int()
    _vocabulary_backward_kernel[(operands.blocks(tiles)[1],)](
        operands.x, table, operands.shifts(tiles), operands.tokens, saved.log_sum_exp,
        grad_nll.contiguous(), grad_total, counts, order, spread, level,
        grad_table, grad_bias, len(operands.x), words, operands.blocks(forward)[0],
        parts=forward.rows // tiles.rows, pieces=forward.words // tiles.words, **operands.options(tiles),
    )  # fmt: skip
    return grad_table, grad_bias


class _NllAndMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        operands = _operands(x, weight, bias, tokens, dtype)
        nll_out, mean, saved = _forward(operands, needs_grad=True)
        assert saved is not None
        ctx.operands, ctx.saved = operands, saved
        ctx.types = x.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.set_materialize_grads(False)  # there is less to do if the mean is not used
        return nll_out, mean

    @staticmethod
    def backward(
        ctx: Any, grad_nll: Tensor | None, grad_mean_nll: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        operands, saved = ctx.operands, ctx.saved
        if grad_nll is None:
            grad_nll = torch.zeros_like(saved.log_sum_exp)
        grad_x, grad_table, grad_bias = None, None, None
        if ctx.needs_input_grad[0]:
            grad_x = grad_nll[:, None] * saved.grad_x_nll
            if grad_mean_nll is not None:
                grad_x += grad_mean_nll[:, None] * saved.grad_x_mean
            grad_x = grad_x.to(ctx.types[0])
        if any(ctx.needs_input_grad[1:3]):
            grad_table, grad_bias = _backward(operands, saved, grad_nll, grad_mean_nll)
            grad_table = grad_table.to(ctx.types[1])
            grad_bias = None if grad_bias is None else grad_bias.to(ctx.types[2])
        return grad_x, grad_table, grad_bias, None, None
