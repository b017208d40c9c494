"""Layers and attention as few nodes of onnxruntime, where tracing torch would give many.

An engine pays for every node, and most nodes of a small step compute little. A layer of `int8` becomes

    m = max(|x|),    y = (round(x/m · 127) · W) · b/127 · m + bias

with one node for rounding and one for the product and its units; attention becomes one node. Both are
onnxruntime's own, and made of what the traced program calls: torch's attention, and `whole` for the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from noise2text.acceleration.int8 import LARGEST, Int8Linear, least, multiply

__all__ = ["call_by_name", "translations"]

ZERO = 128  # what stands for 0 where whole numbers have no sign; engines are fast only without it
HIDDEN = torch.finfo(torch.float).min  # added to the score of a key that is not seen; the engine's is −10,000
FLOAT, BYTE, SIGNED, WHOLE = (f"tensor({name})" for name in ("float", "uint8", "int8", "int32"))


@torch.library.custom_op("noise2text::whole", mutates_args=())
def whole(x: Tensor, weight: Tensor, unit: Tensor, bias: Tensor) -> Tensor:
    """What an 8-bit layer makes of x, under a name that a traced program keeps."""
    return multiply(x, weight, unit, bias)


@whole.register_fake
def _shape(x: Tensor, weight: Tensor, unit: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(bias))


def call_by_name(module: nn.Module) -> None:
    """Let the module's 8-bit layers multiply by the name that a traced program keeps."""
    for layer in module.modules():
        if isinstance(layer, Int8Linear):
            layer.multiply = torch.ops.noise2text.whole


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """What to write for calls that tracing meets."""
    return {
        torch.ops.noise2text.whole.default: _whole,
        torch.ops.aten.scaled_dot_product_attention.default: _attention,
    }


def _whole(x: Any, weight: Any, unit: Any, bias: Any) -> Any:
    """Nodes of an 8-bit layer; a row has its own unit."""
    import onnx

    op = _standard()
    largest = op.ReduceMax(op.Abs(x), op.Constant(value_ints=[-1]), keepdims=1)
    largest = op.Max(largest, _number(least(torch.float)))
    zero = op.Constant(value=onnx.helper.make_tensor("zero", onnx.TensorProto.UINT8, [], [ZERO]))
    counts = op.QuantizeLinear(op.Div(x, largest), _number(1 / LARGEST), zero)
    product = _node(
        "MatMulIntegerToFloat",
        {"A": BYTE, "B": SIGNED, "a_scale": FLOAT, "b_scale": FLOAT, "a_zero_point": BYTE},
    )
    return op.Add(op.Mul(product(counts, weight, _number(1 / LARGEST), unit, zero), largest), bias)


def _attention(
    queries: Any,
    keys: Any,
    values: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """One node for attention of heads (B, heads, L, ·); its mask has a row a sentence (`attention.visible`).

    Where all keys are hidden torch answers with 0 and the engine with their mean; no text comes to that.
    """
    assert (is_causal, scale, enable_gqa) == (False, None, False)  # `attention.attend` asks for nothing else
    assert attn_mask is None or tuple(attn_mask.shape[1:3]) == (1, 1)
    import onnx

    op = _standard()
    heads, dim = int(queries.shape[1]), int(queries.shape[3])
    inputs = [_rows(queries), *(_rows(each) if _split(each) else each for each in (keys, values))]
    if attn_mask is not None:
        seen = op.Reshape(op.Greater(attn_mask, _number(HIDDEN)), op.Constant(value_ints=[0, -1]))
        inputs += [None, op.Cast(seen, to=onnx.TensorProto.INT32)]
    attend = _node(
        "MultiHeadAttention",
        {"query": FLOAT, "key": FLOAT, "value": FLOAT, "bias": FLOAT, "key_padding_mask": WHOLE},
        attributes={"num_heads": "INT", "mask_filter_value": "FLOAT"},
    )
    found = op.Reshape(
        attend(*inputs, num_heads=heads, mask_filter_value=HIDDEN), op.Constant(value_ints=[0, 0, heads, dim])
    )
    return op.Transpose(found, perm=[0, 2, 1, 3])


def _split(heads: Any) -> bool:
    """Whether the heads were split right here: then they lie side by side in memory, in rows."""
    made = heads.producer()
    return made is not None and made.op_type == "Transpose"


def _rows(heads: Any) -> Any:
    """Heads (B, heads, L, ·) side by side (B, L, W); a transposition and this one leave each other out."""
    op, (_, count, _, dim) = _standard(), heads.shape
    side_by_side = op.Transpose(heads, perm=[0, 2, 1, 3])
    return op.Reshape(side_by_side, op.Constant(value_ints=[0, 0, int(count) * int(dim)]))


def _standard() -> Any:
    import onnxscript

    return cast(Any, onnxscript).opset18


def _number(value: float) -> Any:
    return _standard().Constant(value_float=float(value))


def _node(name: str, inputs: Mapping[str, str], *, attributes: Mapping[str, str] | None = None) -> Any:
    """A node of onnxruntime's own by its name; all inputs but the first can be left out."""
    import onnx
    import onnxscript

    schema = onnx.defs.OpSchema
    single, optional = schema.FormalParameterOption.Single, schema.FormalParameterOption.Optional
    parameters = [
        schema.FormalParameter(each, kind, param_option=optional if number else single)
        for number, (each, kind) in enumerate(inputs.items())
    ]
    described = schema(
        name,
        "com.microsoft",
        1,
        inputs=parameters,
        outputs=[schema.FormalParameter("made", FLOAT)],
        attributes=[
            schema.Attribute(each, getattr(schema.AttrType, kind))
            for each, kind in (attributes or {}).items()
        ],
    )
    values = cast(Any, onnxscript).values
    return values.Op(values.Opset("com.microsoft", 1), name, described)
