"""Linear layers in int8: y = (round(x / a) · round(W / b)) · a·b + bias.

W is quantized once, with a scale b for each output. x is quantized at every call, with a scale a for each
row, so a row's result depends on no other row. The integer products are exact. The float32 operations between
these layers get the same order of additions in every batch (`batch_invariance.py`), since rounding would make
a last bit visible. So neither the batch nor the padding changes a text.

On CPUs with instructions for 8-bit products (VNNI) they take a quarter of float32's time. Rounding to ±127
leaves an error of about 1 %, which the next denoising steps correct.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from noise2text.acceleration.batch_invariance import make_batch_invariant
from noise2text.acceleration.unpadding import leave_out_padding
from noise2text.core.errors import Problem
from noise2text.core.weight_storage import row_scale

__all__ = [
    "Int8Linear",
    "has_fast_int8",
    "int8_linear",
    "quantize_if_asked",
    "quantize_linears",
]

MIN_WEIGHTS = 1 << 16  # layers with fewer weights gain too little from int8
MIN_ENCODER_WEIGHTS = 1 << 17  # an encoder runs once: int8 saves less there, and no later step corrects it


class Int8Linear(nn.Module):
    """A linear layer with int8 weights, for inference only."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()  # (out, in)
        weight_scale = row_scale(weight)
        quantized = (weight / weight_scale).round().to(torch.int8)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("weight", quantized.T.contiguous())  # (in, out), as the product needs it
        self.register_buffer("weight_scale", weight_scale[:, 0])
        bias = torch.zeros(len(weight)) if linear.bias is None else linear.bias.detach().float()
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.int8_linear: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = int8_linear

    weight: Tensor
    weight_scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.int8_linear(x, self.weight, self.weight_scale, self.bias)


def int8_linear(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor) -> Tensor:
    """The equation of this module, for int8 weights (in, out) and their scales (out,)."""
    rows = x.flatten(0, -2)  # (R, in)
    scale = row_scale(rows)
    quantized = (rows / scale).round_().to(torch.int8)
    return torch.addcmul(bias, torch._int_mm(quantized, weight) * scale, weight_scale).unflatten(
        0, x.shape[:-1]
    )


def has_fast_int8() -> bool:
    """Whether this CPU multiplies int8 numbers faster than float32."""
    return bool(torch.cpu._is_vnni_supported())


def quantize_linears(module: nn.Module, *, min_weights: int, min_encoder_weights: int | None = None) -> int:
    """Replace the module's linear layers of at least `min_weights` weights by int8 ones; returns how many.

    `min_encoder_weights` is another least number for the layers that run once per sentence: those of an
    encoder, and the keys and values of attention to the source.
    """
    if min_encoder_weights is None:
        min_encoder_weights = min_weights
    run_once = {
        layer
        for name, part in module.named_modules()
        if name.rpartition(".")[2] in ("encoder", "key_value_projection")
        for layer in part.modules()
    }
    found = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
        and child.weight.numel() >= (min_encoder_weights if child in run_once else min_weights)
    ]
    for parent, name, child in found:
        setattr(parent, name, Int8Linear(child))
    return len(found)


def quantize_if_asked(module: nn.Module | None, precision: str, device: torch.device) -> None:
    """Replace the module's linear layers by int8 ones for the precision int8, or auto where it is faster."""
    if precision == "int8":
        if module is None or device.type != "cpu":
            raise Problem(
                "The precision int8 is for diffusion models on a CPU; use auto or bfloat16 elsewhere."
            )
        min_weights, min_encoder_weights = 1, 1
    elif precision == "auto" and module is not None and device.type == "cpu" and has_fast_int8():
        min_weights, min_encoder_weights = MIN_WEIGHTS, MIN_ENCODER_WEIGHTS
    else:
        return
    if quantize_linears(module, min_weights=min_weights, min_encoder_weights=min_encoder_weights):
        make_batch_invariant(module)
        leave_out_padding(module)
