"""Linear layers that count in whole numbers: y = (round(x / a) · round(W / b)) · a·b + bias.

W is rounded once, with a unit b for each output; x at every call, with a unit a for each row, so that a row's
result depends on no other row, and neither the batch nor the padding changes a text. The products are sums of
whole numbers, and exact. On CPUs with instructions for them (VNNI) they take a quarter of float32's time, and
rounding to ±127 leaves an error of about 1 %, which the next steps of a walk mend.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem

__all__ = ["LARGEST", "Int8Linear", "has_int8", "least", "multiply", "quantise", "round_weights"]

LARGEST = 127
WORTH = 1 << 17  # weights from which on rounding a layer gains much; smaller models stay as they are


class Int8Linear(nn.Module):
    """A linear layer, its weights rounded to 8 bits; it only generates."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()  # (out, in)
        unit = _unit(weight)
        counts = (weight / unit).round().to(torch.int8)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("weight", counts.T.contiguous())  # (in, out), as the product wants it
        self.register_buffer("unit", unit[:, 0])
        bias = torch.zeros(len(weight)) if linear.bias is None else linear.bias.detach().float()
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.multiply: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = multiply

    weight: Tensor
    unit: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.weight, self.unit, self.bias)


def multiply(x: Tensor, weight: Tensor, unit: Tensor, bias: Tensor) -> Tensor:
    """The module's equation, for whole weights (in, out) and their units (out,)."""
    rows = x.flatten(0, -2)  # (R, in)
    own = _unit(rows)
    counts = (rows / own).round_().to(torch.int8)
    return torch.addcmul(bias, torch._int_mm(counts, weight) * own, unit).unflatten(0, x.shape[:-1])


def _unit(rows: Tensor) -> Tensor:
    """What one count is worth in each row (R, 1); the largest entry is 127 of them."""
    # The maximum norm says the same, but takes ten times as long.
    return rows.abs().amax(1, keepdim=True).clamp_(min=least(rows.dtype)) / LARGEST


def least(dtype: torch.dtype) -> float:
    """The smallest largest entry of a row: a row of zeros stays one."""
    return torch.finfo(dtype).tiny * LARGEST


def has_int8() -> bool:
    """Whether this CPU multiplies 8-bit numbers faster than others."""
    return bool(torch.cpu._is_vnni_supported())


def quantise(module: nn.Module, *, smallest: int = WORTH) -> int:
    """How many linear layers within the module became 8-bit ones: those of at least so many weights."""
    found = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and child.weight.numel() >= smallest
    ]
    for parent, name, child in found:
        setattr(parent, name, Int8Linear(child))
    return len(found)


def round_weights(module: nn.Module | None, precision: str, device: torch.device) -> None:
    """Make the module's layers 8-bit ones if int8 asks for it, or if auto finds that faster."""
    if precision == "auto" and module is not None and device.type == "cpu" and has_int8():
        quantise(module)
    if precision != "int8":
        return
    if module is None or device.type != "cpu":
        raise Problem("The precision int8 is for diffusion models on a CPU; use auto or bfloat16 elsewhere.")
    quantise(module, smallest=1)
