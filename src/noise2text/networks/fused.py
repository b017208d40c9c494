"""What memory bounds in training, compiled to as few kernels as it can be; for any number of rows at once.

    residual    LayerNorm(x + dropout(y)), which also rounds to the type of y
    surprises   −log p(y | logits) and its mean over the whole vocabulary

Only the number of rows is left open to the compiler, so that each is compiled once for all shapes of a run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, layer_norm

from noise2text.diffusion.losses import surprises as plain_surprises

__all__ = ["add_norm", "surprises"]


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, eps: float, rate: float) -> Tensor:
    """LayerNorm(x + dropout(y)) over the last dimension, in the type of y."""
    out: Tensor = _compiled(_add_norm)(_open(x), _open(y.expand_as(x)), weight, bias, eps, rate)
    return out.view_as(x)


def surprises(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """As `diffusion.losses.surprises`."""
    at, mean = _compiled(plain_surprises)(_open(logits), _open(tokens[..., None])[:, 0])
    return at.view_as(tokens), mean.view_as(tokens)


def _add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, eps: float, rate: float) -> Tensor:
    total = x.float() + dropout(y, rate).float()
    return layer_norm(total, total.shape[-1:], weight, bias, eps).to(y.dtype)


def _open(x: Tensor) -> Tensor:
    """The rows (N, ·) of a tensor, their number left open."""
    rows = x.flatten(0, -2)
    torch._dynamo.mark_dynamic(rows, 0)
    return rows


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False)
    return compiled
