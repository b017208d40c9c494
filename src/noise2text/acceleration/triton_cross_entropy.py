"""Surprises over a vocabulary whose logits are never written down; in Triton, imported only where it runs.

    s = log Σ_w exp(x·W_w + b_w),    at = s − (x·W_y + b_y),    mean = s − (x·W̄ + b̄)

One pass over blocks of the vocabulary keeps, for a block of rows, a running maximum and a running sum, as
attention in tiles does (Milakov and Gimelshein, 2018; Dao et al., 2022; for losses Wijmans et al., 2025). It
also keeps Σ p_w·W_w, since both gradients for x are this less a known vector, W_y or W̄: the way back does
not have to multiply for x again. For W and b it does, block by block of the vocabulary, with

    ∂/∂logit_w = (g₁ + g₂)·p_w − g₁·[w = y] − g₂/V,

whose last part is the same for all words and is taken off in the end. A tile of rows and words in which no
word is right and every p_w is below e^−28 is looked at once and then left out, here and on the way back:
float32 does not see the sum of tens of thousands of them. Nothing is added atomically, so that the same
numbers always give the same bits.
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

__all__ = ["surprises"]

NEGLIGIBLE = 28.0
"""By how much the likeliest has to outscore a word that is left out."""

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _take(matrix, row, there, dim: tl.constexpr, block_d: tl.constexpr):  # type: ignore[no-untyped-def]
    channel = tl.arange(0, block_d)
    inside = there[:, None] & (channel < dim)[None, :]
    return tl.load(matrix + row[:, None] * dim + channel[None, :], mask=inside, other=0.0)


@triton.jit
def _exp(x):  # type: ignore[no-untyped-def]
    return tl.exp2(x * LOG2E)  # half of the instructions of tl.exp, which does not flush the smallest numbers


@triton.jit(do_not_specialize=["rows"])
def _vocabulary_loss(  # type: ignore[no-untyped-def]
    x, table, shifts, tokens, centre, level, at, mean, whole, to_right, to_mean, visited, rows, vocabulary,
    learns: tl.constexpr, negligible: tl.constexpr, dim: tl.constexpr,
    block_d: tl.constexpr, block_n: tl.constexpr, block_v: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    row = block * block_n + tl.arange(0, block_n)
    there = row < rows
    states = _take(x, row.to(tl.int64), there, dim, block_d)
    token = tl.load(tokens + row, mask=there, other=-1).to(tl.int32)
    spelled = (token >= 0) & (token < vocabulary)
    right = tl.sum(states.to(tl.float32) * _take(table, token, spelled, dim, block_d).to(tl.float32), axis=1)
    right += tl.load(shifts + token, mask=spelled, other=0.0)
    # The right word is likely the likeliest: what it scores shows from the start what is negligible. It is
    # taken a little lower, so that the maximum is a product of the loop, which the way back computes again.
    peak = tl.where(spelled, right - 1.0, -float("inf"))
    total = tl.zeros((block_n,), tl.float32)
    mixed = tl.zeros((block_n, block_d), tl.float32)
    shift = tl.load(shifts + tl.arange(0, block_v))
    for start in range(0, vocabulary, block_v):
        word = start + tl.arange(0, block_v)
        weights = _take(table, word, word < vocabulary, dim, block_d)
        logits = tl.dot(states, tl.trans(weights), input_precision="ieee") + shift[None, :]
        shift = tl.load(shifts + word + block_v)  # of the next block: nobody fetches it ahead otherwise
        highest = tl.max(logits, axis=1)
        here = (token >= start) & (token < start + block_v)
        above = tl.where(here, 0.0, tl.where(there, highest - peak, -float("inf")))
        matters = tl.max(above, axis=0) > -negligible
        if learns:
            tl.store(visited + (start // block_v) * tl.num_programs(0) + block, matters.to(tl.int8))
        if matters:
            higher = tl.maximum(peak, highest)
            shares = _exp(logits - higher[:, None])
            fade = _exp(peak - higher)
            total = total * fade + tl.sum(shares, axis=1)
            if learns:
                faded = mixed * fade[:, None]
                mixed = tl.dot(shares.to(weights.dtype), weights, faded, input_precision="ieee")
            peak = higher
    log_sum = peak + tl.log(total)
    channel = tl.arange(0, block_d)
    middle = tl.load(centre + channel, mask=channel < dim, other=0.0)[None, :]
    average = tl.sum(states.to(tl.float32) * middle, axis=1)
    if level is not None:
        average += tl.load(level)
    surprise = log_sum - right
    surprise = tl.where(surprise < 0.0, 0.0, surprise)  # two products may be rounded apart; NaN stays NaN
    tl.store(at + row, surprise, mask=there)
    tl.store(mean + row, log_sum - average, mask=there)
    if learns:
        tl.store(whole + row, log_sum, mask=there)
        expected = mixed / total[:, None]
        again = tl.load(tokens + row, mask=spelled, other=0)  # or its places take registers through the loop
        wanted = _take(table, again, spelled, dim, block_d).to(tl.float32)
        place = row.to(tl.int64)[:, None] * dim + channel[None, :]
        inside = there[:, None] & (channel < dim)[None, :]
        tl.store(to_right + place, (expected - wanted).to(states.dtype), mask=inside)
        tl.store(to_mean + place, (expected - middle).to(states.dtype), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _vocabulary_gradient(  # type: ignore[no-untyped-def]
    x, table, shifts, tokens, whole, on_at, on_both, counts, order, spread, level,
    on_table, on_bias, rows, vocabulary, row_blocks,
    parts: tl.constexpr, pieces: tl.constexpr, dim: tl.constexpr,
    block_d: tl.constexpr, block_n: tl.constexpr, block_v: tl.constexpr,
):  # fmt: skip
    # A tile of the way forward is seen in parts of its rows, and by a program for each piece of its words.
    block = tl.program_id(0)
    word = block * block_v + tl.arange(0, block_v)
    known = word < vocabulary
    weights, shift = _take(table, word, known, dim, block_d), tl.load(shifts + word)
    gathered = tl.zeros((block_v, block_d), tl.float32)
    summed = tl.zeros((block_v,), tl.float32)
    above = block // pieces
    for number in range(tl.load(counts + above) * parts):
        first = (tl.load(order + above * row_blocks + number // parts) * parts + number % parts) * block_n
        row = first + tl.arange(0, block_n)
        there = row < rows
        states = _take(x, row.to(tl.int64), there, dim, block_d)
        log_sum = tl.load(whole + row, mask=there, other=float("inf"))
        token = tl.load(tokens + row, mask=there, other=-1).to(tl.int32)
        one = tl.load(on_at + row, mask=there, other=0.0)
        both = one if on_both is None else tl.load(on_both + row, mask=there, other=0.0)
        logits = tl.dot(weights, tl.trans(states), input_precision="ieee") + shift[:, None]
        gradient = _exp(logits - log_sum[None, :]) * both[None, :]
        gradient = tl.where(word[:, None] == token[None, :], gradient - one[None, :], gradient)
        gathered = tl.dot(gradient.to(states.dtype), states, gathered, input_precision="ieee")
        if on_bias is not None:
            summed += tl.sum(gradient, axis=1)
    channel = tl.arange(0, block_d)
    if spread is not None:
        gathered -= tl.load(spread + channel, mask=channel < dim, other=0.0)[None, :]
        if on_bias is not None:
            summed -= tl.load(level)
    place = word[:, None] * dim + channel[None, :]
    tl.store(on_table + place, gathered, mask=known[:, None] & (channel < dim)[None, :])
    if on_bias is not None:
        tl.store(on_bias + word, summed, mask=known)


@dataclass(frozen=True)
class _Tiles:
    """How many rows and words are multiplied at once, and by how much of a multiprocessor."""

    rows: int
    words: int
    warps: int
    stages: int


@dataclass(frozen=True)
class _Plan:
    """The tiles of each kernel; those of the way back divide those of the way forward."""

    learning: _Tiles
    watching: _Tiles  # forward where nothing is learned
    back: _Tiles


@functools.cache
def _plan(channels: int, device: torch.device) -> _Plan:
    """The tiles for so many channels, a power of two; the compiler keeps all of their sums in registers."""
    if device.type != "cuda":
        return _Plan(_Tiles(32, 32, 4, 1), _Tiles(32, 32, 4, 1), _Tiles(16, 16, 4, 1))
    if torch.cuda.get_device_capability(device)[0] not in (9, 10):  # less shared memory
        size = 64 if channels <= 64 else 32
        return _Plan(_Tiles(size, size, 4, 2), _Tiles(size, size, 4, 2), _Tiles(32, size, 4, 2))
    if channels > 128:
        return _Plan(_Tiles(64, 64, 8, 3), _Tiles(64, 64, 8, 3), _Tiles(64, 64, 8, 3))
    return _Plan(_Tiles(128, 128, 8, 3), _Tiles(128, 128, 8, 3), _Tiles(64, 128, 8, 3))


@dataclass(frozen=True)
class _Given:
    """The factors of a product over the vocabulary, in the type that is multiplied."""

    x: Tensor  # (N, D)
    table: Tensor  # (V, D)
    bias: Tensor | None  # (V,), in float32
    tokens: Tensor  # (N,)

    @property
    def channels(self) -> int:
        """D, rounded up to what a tile can have."""
        return max(16, int(triton.next_power_of_2(self.x.shape[1])))

    @property
    def plan(self) -> _Plan:
        return _plan(self.channels, self.x.device)

    def blocks(self, tiles: _Tiles) -> tuple[int, int]:
        """The number of blocks of rows and of words."""
        return triton.cdiv(len(self.x), tiles.rows), triton.cdiv(len(self.table), tiles.words)

    def shifts(self, tiles: _Tiles) -> Tensor:
        """The bias, or zeros, and −∞ for words that are none, a block of them more than there are."""
        words = len(self.table)
        bias = self.x.new_zeros(words, dtype=torch.float32) if self.bias is None else self.bias
        return pad(bias, (0, (self.blocks(tiles)[1] + 1) * tiles.words - words), value=-torch.inf)

    def options(self, tiles: _Tiles) -> dict[str, int]:
        """What a kernel is compiled for."""
        sizes = {"block_d": self.channels, "block_n": tiles.rows, "block_v": tiles.words}
        return sizes | {"dim": self.x.shape[1], "num_warps": tiles.warps, "num_stages": tiles.stages}


@dataclass(frozen=True)
class _Learned:
    """What the way back needs of the way forward."""

    whole: Tensor  # (N,), log Σ exp
    to_right: Tensor  # (N, D), the gradient for x of the surprise at the right token
    to_mean: Tensor  # (N, D), and of the mean surprise
    visited: Tensor  # (blocks of words, blocks of rows), which of the tiles matter


def surprises(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, tokens: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The surprise at the tokens (N,) and its mean over the vocabulary, of x (N, D) · weightᵀ (V, D) + bias.

    Factors are rounded to the dtype, sums are in float32, gradients come in the types of what was given.
    """
    assert weight.numel() < 2**31
    learned = [tensor for tensor in (x, weight, bias) if tensor is not None and tensor.requires_grad]
    with torch.cuda.device_of(x):
        if learned and torch.is_grad_enabled():
            out: tuple[Tensor, Tensor] = _Surprises.apply(x, weight, bias, tokens, dtype)
            return out
        return _forward(_given(x, weight, bias, tokens, dtype), learns=False)[:2]


def _given(x: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, dtype: torch.dtype) -> _Given:
    shift = None if bias is None else bias.detach().float().contiguous()
    factors = [tensor.detach().to(dtype).contiguous() for tensor in (x, weight)]
    return _Given(factors[0], factors[1], shift, tokens.contiguous())


def _forward(given: _Given, *, learns: bool) -> tuple[Tensor, Tensor, _Learned | None]:
    x, table, bias, words = given.x, given.table, given.bias, len(given.table)
    tiles = given.plan.learning if learns else given.plan.watching
    blocks, word_blocks = given.blocks(tiles)
    at, mean = (torch.empty(len(x), dtype=torch.float32, device=x.device) for _ in range(2))
    learned = None
    if learns:
        visited = torch.empty(word_blocks, blocks, dtype=torch.int8, device=x.device)
        learned = _Learned(torch.empty_like(at), torch.empty_like(x), torch.empty_like(x), visited)
    kept = (learned.whole, learned.to_right, learned.to_mean, learned.visited) if learned else (None,) * 4
    level = None if bias is None else bias.mean()
    _vocabulary_loss[(blocks,)](
        x, table, given.shifts(tiles), given.tokens, column_sums(table) / words, level, at, mean, *kept,
        len(x), words, learns=learns, negligible=NEGLIGIBLE, **given.options(tiles),
    )  # fmt: skip
    return at, mean, learned


def _backward(
    given: _Given, learned: _Learned, on_at: Tensor, on_mean: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The gradients for the table and the bias, in float32."""
    table, bias, words = given.table, given.bias, len(given.table)
    on_both = spread = level = None
    if on_mean is not None:
        on_both = on_at + on_mean
        spread = column_sums(on_mean[:, None] * given.x) / words
        level = on_mean.sum() / words
    on_table = torch.empty_like(table, dtype=torch.float32)
    on_bias = None if bias is None else torch.empty_like(bias)
    tiles, forward = given.plan.back, given.plan.learning
    counts = learned.visited.sum(1, dtype=torch.int32)
    order = learned.visited.argsort(dim=1, descending=True, stable=True).int()
    _vocabulary_gradient[(given.blocks(tiles)[1],)](
        given.x, table, given.shifts(tiles), given.tokens, learned.whole, on_at.contiguous(), on_both, counts,
        order, spread, level, on_table, on_bias, len(given.x), words, given.blocks(forward)[0],
        parts=forward.rows // tiles.rows, pieces=forward.words // tiles.words, **given.options(tiles),
    )  # fmt: skip
    return on_table, on_bias


class _Surprises(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        given = _given(x, weight, bias, tokens, dtype)
        at, mean, learned = _forward(given, learns=True)
        assert learned is not None
        ctx.given, ctx.learned = given, learned
        ctx.types = x.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.set_materialize_grads(False)  # where nobody asks for the mean, there is less to do
        return at, mean

    @staticmethod
    def backward(ctx: Any, on_at: Tensor | None, on_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        given, learned = ctx.given, ctx.learned
        if on_at is None:
            on_at = torch.zeros_like(learned.whole)
        on_x, on_table, on_bias = None, None, None
        if ctx.needs_input_grad[0]:
            on_x = on_at[:, None] * learned.to_right
            if on_mean is not None:
                on_x += on_mean[:, None] * learned.to_mean
            on_x = on_x.to(ctx.types[0])
        if any(ctx.needs_input_grad[1:3]):
            on_table, on_bias = _backward(given, learned, on_at, on_mean)
            on_table = on_table.to(ctx.types[1])
            on_bias = None if on_bias is None else on_bias.to(ctx.types[2])
        return on_x, on_table, on_bias, None, None
