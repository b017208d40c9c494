"""The memory-bound operations of training, each compiled to as few kernels as possible.

    add_norm          LayerNorm(x + dropout(y + b)), which also rounds to the dtype of products
    token_nll         −log p(y | logits), and the mean of −log p over the whole vocabulary
    bias_activation   an activation of x + b, which the backward pass recomputes from its input
    linear            x · Wᵀ + b, whose gradient for b is the sum of all rows; `linear_qkv` in three parts
    normal            Gaussian noise from counter-based keys

Only the number of rows is dynamic, so each operation is compiled once for all batch shapes of a run.

With s = log Σ exp(logits), both negative log-likelihoods are s minus a sum over the vocabulary, so the logits
are read once for both; their gradient, (g₁ + g₂)·p − g₁·[w = y] − g₂/V, is one read and one write. The right
token is found by comparison, because a gather would become a scatter in the backward pass. If a GPU has
enough rows of few channels, no logits are written at all (`triton_cross_entropy.py`). Where our kernels
follow a product, they add its bias (`triton_activations.py`, `triton_norms.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, pad
from torch.nn.functional import linear as plain_linear

from noise2text.core.devices import has_triton
from noise2text.core.random import box_muller, channel_offsets
from noise2text.nn.embeddings import LazyLogits, ProjectedLogits

__all__ = [
    "ALIGNMENT",
    "MAX_NORM_WIDTH",
    "add_norm",
    "bias_activation",
    "deferred_bias",
    "dropout_mask",
    "has_kernel",
    "linear",
    "linear_qkv",
    "nll_and_mean",
    "normal",
    "padded_logits",
    "token_nll",
]

ALIGNMENT = 64
"""Tensor cores are slow unless rows are multiples of 8 numbers; tiles of a product have 64 or more."""

MAX_KERNEL_CHANNELS, MIN_KERNEL_ROWS = 256, 8192
"""The most channels and the fewest rows for which no logits are written: a tile has no room for more
channels, and fewer rows do not keep a GPU busy."""

MAX_NORM_WIDTH = 1024
"""The widest rows that our kernel normalises: they have to fit into its registers."""

RECOMPILE_LIMIT = 256
"""How often one function may be compiled."""


def deferred_bias(linear: nn.Module, x: Tensor) -> Tensor | None:
    """The bias of a linear layer if its product with x may omit it, because the next kernel adds it."""
    if not (type(linear).forward is nn.Linear.forward and linear.training and _can_fuse_bias(x)):
        return None
    bias = linear.bias
    return bias if isinstance(bias, Tensor) else None


def _can_fuse_bias(x: Tensor) -> bool:
    """Whether our kernels follow products with x and can add their biases."""
    return (
        x.is_cuda
        and has_triton()
        and _product_type(x) == torch.bfloat16
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
    )


def add_norm(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    eps: float,
    dropout_rate: float,
    input_bias: Tensor | None = None,
) -> Tensor:
    """LayerNorm(x + dropout(y + input_bias)) over the last dimension, in the dtype of products."""
    seeds = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device=x.device) if dropout_rate else None
    dtype, width = _product_type(y), x.shape[-1]
    if width <= MAX_NORM_WIDTH and _can_fuse_bias(x):
        from noise2text.acceleration import triton_norms

        given, dropout = (x, y.expand_as(x), input_bias), triton_norms.Dropout(dropout_rate, seeds)
        return triton_norms.add_norm(*given, weight=weight, bias=bias, eps=eps, dropout=dropout, dtype=dtype)
    rows = _dynamic_rows(x), _dynamic_rows((y if input_bias is None else y + input_bias).expand_as(x))
    out: Tensor = _compile(_add_norm)(*rows, weight, bias, seeds, eps, dropout_rate, dtype)
    return out.view_as(x)


def token_nll(scores: LazyLogits, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """−log p at the tokens and its mean over the vocabulary, as in the plain loss."""
    if isinstance(scores, ProjectedLogits) and _fits_vocabulary_kernel(scores):
        from noise2text.acceleration import triton_cross_entropy

        rows, dtype = scores.states.flatten(0, -2), _product_type(scores.weight)
        at, mean = triton_cross_entropy.nll_and_mean(
            rows, scores.weight, scores.bias, tokens=tokens.flatten(), dtype=dtype
        )
        return at.view_as(tokens), mean.view_as(tokens)
    return nll_and_mean(padded_logits(scores), tokens, vocabulary=scores.vocabulary)


def padded_logits(scores: LazyLogits) -> Tensor:
    """Logits (…, V′ ≥ V); V′ is a multiple of the alignment if they are yet to be computed."""
    if not isinstance(scores, ProjectedLogits):
        return scores.logits()
    missing = -scores.vocabulary % ALIGNMENT
    bias = None if scores.bias is None else pad(scores.bias, (0, missing))
    return linear(scores.states.to(scores.weight.dtype), pad(scores.weight, (0, 0, 0, missing)), bias)


def _fits_vocabulary_kernel(scores: ProjectedLogits) -> bool:
    """Whether the kernels that never write logits suit these."""
    states = scores.states
    return (
        states.is_cuda
        and has_triton()
        and _product_type(scores.weight) == torch.bfloat16
        and states.shape[-1] <= MAX_KERNEL_CHANNELS
        and states.shape[:-1].numel() >= MIN_KERNEL_ROWS
        and torch.cuda.get_device_capability(states.device) >= (8, 0)
    )


def nll_and_mean(logits: Tensor, tokens: Tensor, *, vocabulary: int | None = None) -> tuple[Tensor, Tensor]:
    """−log p at the tokens and its mean over the vocabulary, of the first `vocabulary` logits (…, ≥ V)."""
    size = vocabulary or logits.shape[-1]
    at, mean = _compile(_nll_and_mean)(_dynamic_rows(logits), _dynamic_rows(tokens[..., None]), size)
    return at.view_as(tokens), mean.view_as(tokens)


def bias_activation(activation: nn.Module, x: Tensor, input_bias: Tensor | None = None) -> Tensor:
    """The activation of x + input_bias."""
    if not has_kernel(activation):
        out: Tensor = activation(x if input_bias is None else x + input_bias)
        return out
    if input_bias is not None and _can_fuse_bias(x):
        from noise2text.acceleration import triton_activations

        return triton_activations.bias_activation(x, input_bias, is_gelu=isinstance(activation, nn.GELU))
    activated: Tensor = _compile(_ACTIVATIONS[type(activation)])(
        _dynamic_rows(x if input_bias is None else x + input_bias)
    )
    return activated.view_as(x)


def has_kernel(activation: nn.Module) -> bool:
    """Whether there is a fused kernel for this activation."""
    return type(activation) in _ACTIVATIONS and getattr(activation, "approximate", "none") == "none"


def _gelu(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x)


def _relu(x: Tensor) -> Tensor:
    return torch.nn.functional.relu(x)


_ACTIVATIONS: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {nn.GELU: _gelu, nn.ReLU: _relu}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x · Wᵀ + b as torch computes it; the gradient of the bias has the bias's own precision."""
    dtype = _product_type(x)
    out: Tensor = _Linear.apply(x.to(dtype), weight.to(dtype), bias)
    return out


class _Linear(torch.autograd.Function):
    """A product whose bias gradient is a sum by our kernel or a compiled one, twice as fast as torch's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return plain_linear(x, weight, None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_x, grad_weight, grad_bias = ctx.needs_input_grad
        rows = gradient.flatten(0, -2)
        return (
            (rows @ weight).view_as(x) if grad_x else None,
            rows.t() @ x.flatten(0, -2) if grad_weight else None,
            _column_sums(rows) if grad_bias else None,
        )


def linear_qkv(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x · Wᵀ + b in three equal parts of its last dimension."""
    dtype = _product_type(x)
    out: tuple[Tensor, Tensor, Tensor] = _LinearQKV.apply(x.to(dtype), weight.to(dtype), bias)
    return out


class _LinearQKV(torch.autograd.Function):
    """A product in three parts; one kernel concatenates their gradients and sums them for the bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        return plain_linear(x, weight, bias.to(x.dtype)).chunk(3, dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        x, weight = ctx.saved_tensors
        rows, sums = _concat_with_column_sums([gradient.flatten(0, -2) for gradient in gradients])
        grad_x, grad_weight, _ = ctx.needs_input_grad
        return (
            (rows @ weight).view_as(x) if grad_x else None,
            rows.t() @ x.flatten(0, -2) if grad_weight else None,
            sums,
        )


def _concat_with_column_sums(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    if parts[0].is_cuda and has_triton():
        from noise2text.acceleration.triton_generation import concat_with_column_sums

        return concat_with_column_sums(*parts)
    rows = torch.cat(parts, dim=-1)
    return rows, _column_sums(rows)


def _column_sums(rows: Tensor) -> Tensor:
    if rows.is_cuda and has_triton():
        from noise2text.acceleration.triton_generation import column_sums

        return column_sums(rows)
    out: Tensor = _compile(_sum_rows)(_dynamic_rows(rows))
    return out


def _sum_rows(rows: Tensor) -> Tensor:
    return rows.sum(0, dtype=torch.float32)


def normal(keys: Tensor, dim: int) -> Tensor:
    """Standard normal noise (…, dim) for keys (…), the same bits as `core.random.normal`."""
    # The channels are an argument: the compiler would compute them in 32 bits where their range allows it.
    drawn: Tensor = _compile(_normal)(_dynamic_rows(keys[..., None]), channel_offsets(dim, keys.device), dim)
    return drawn.view(*keys.shape, dim)


def _normal(keys: Tensor, offsets: Tensor, dim: int) -> Tensor:
    return box_muller(keys[:, 0], offsets)[:, :dim]


def _nll_and_mean(logits: Tensor, tokens: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    x = logits[:, :vocabulary].float()  # (N, V)
    peak = x.detach().amax(-1, keepdim=True)
    whole = (peak + (x - peak).exp().sum(-1, keepdim=True).log())[:, 0]
    right = torch.arange(vocabulary, device=x.device) == tokens
    return whole - torch.where(right, x, 0).sum(-1), whole - x.mean(-1)


def _add_norm(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    seeds: Tensor | None,
    eps: float,
    dropout_rate: float,
    dtype: torch.dtype,
) -> Tensor:
    y_kept = (
        y.float()
        if seeds is None
        else torch.where(dropout_mask(y, seeds, dropout_rate), y.float() / (1 - dropout_rate), 0)
    )
    total = x.float() + y_kept
    return layer_norm(total, total.shape[-1:], weight, bias, eps).to(dtype)


def dropout_mask(y: Tensor, seeds: Tensor, dropout_rate: float) -> Tensor:
    """Which of the numbers (N, W) dropout keeps: a 32-bit hash of the position and two seeds.

    The compiler's own generator takes a hundred operations per number, this one a dozen, which the memory
    accesses hide. It is a multiplicative hash of two rounds (Wellons, 2018); the second seed enters between
    them, so that no mask is a shifted copy of another.
    """
    rows, width = y.shape
    position_indices = torch.arange(rows, dtype=torch.int32, device=y.device)[:, None] * width
    bits = position_indices + torch.arange(width, dtype=torch.int32, device=y.device) + seeds[0]
    bits = (bits ^ _shift(bits, 16)) * 0x7FEB352D ^ seeds[1]
    bits = (bits ^ _shift(bits, 15)) * _signed(0x846CA68B)
    bits = bits ^ _shift(bits, 16)
    return bits >= round(dropout_rate * 2**32) - 2**31


def _signed(number: int) -> int:
    """The same 32 bits as a signed integer."""
    return number - (1 << 32)


def _shift(bits: Tensor, by: int) -> Tensor:
    """A logical right shift of signed integers."""
    return (bits >> by) & ((1 << (32 - by)) - 1)


def _product_type(x: Tensor) -> torch.dtype:
    """The dtype in which products with x are computed."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _dynamic_rows(x: Tensor) -> Tensor:
    """The rows (N, ·) of a tensor; N is dynamic for the compiler."""
    rows = x.flatten(0, -2)
    if len(rows) > 1:  # the compiler treats one row as a special case
        torch._dynamo.mark_dynamic(rows, 0)
    return rows


@functools.cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False)
    # Each width, rate and dtype is compiled separately, and a process may train many models.
    with_limit: Callable[..., Any] = torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT)(compiled)
    return with_limit
