"""Int8 layers and attention as few nodes of onnxruntime, where tracing torch would give many.

Every node costs the engine time, and most nodes of a small step compute little. A layer of `int8.py` becomes

    m = max(|x|),    y = (round(x/m · 127) · W) · b/127 · m + bias

with one node for rounding and one for the product and its scales; attention becomes one node. Both are
onnxruntime's own operators. They replace what the traced program calls: torch's attention, and
`int8_linear_op` for the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from noise2text.acceleration.int8 import Int8Linear, int8_linear
from noise2text.core.weight_storage import INT8_MAX, min_row_max

__all__ = ["onnx_translations", "use_int8_custom_op"]

ZERO_POINT = 128  # what stands for 0 in uint8; onnxruntime is fast only with unsigned inputs
MASK_VALUE = torch.finfo(torch.float).min  # added to the score of a hidden key; by default −10,000
FLOAT, UINT8, INT8, INT32 = (f"tensor({name})" for name in ("float", "uint8", "int8", "int32"))


@torch.library.custom_op("noise2text::int8_linear_op", mutates_args=())
def int8_linear_op(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor) -> Tensor:
    """`int8_linear` as a custom operator, whose name a traced program keeps."""
    return int8_linear(x, weight, weight_scale, bias)


@int8_linear_op.register_fake
def _fake_int8_linear(x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(bias))


def use_int8_custom_op(module: nn.Module) -> None:
    """Let the module's int8 layers call the custom operator, whose name a traced program keeps."""
    for layer in module.modules():
        if isinstance(layer, Int8Linear):
            layer.int8_linear = torch.ops.noise2text.int8_linear_op


def onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The translation to ONNX of each operator that is not translated as usual."""
    return {
        torch.ops.noise2text.int8_linear_op.default: _translate_int8_linear,
        torch.ops.aten.scaled_dot_product_attention.default: _translate_attention,
    }


def _translate_int8_linear(x: Any, weight: Any, weight_scale: Any, bias: Any) -> Any:
    """The nodes of an int8 layer; each row has its own scale."""
    import onnx

    op = _opset()
    largest = op.ReduceMax(op.Abs(x), op.Constant(value_ints=[-1]), keepdims=1)
    largest = op.Max(largest, _float_constant(min_row_max(torch.float)))
    zero = op.Constant(value=onnx.helper.make_tensor("zero", onnx.TensorProto.UINT8, [], [ZERO_POINT]))
    quantized = op.QuantizeLinear(op.Div(x, largest), _float_constant(1 / INT8_MAX), zero)
    product = _microsoft_op(
        "MatMulIntegerToFloat",
        {"A": UINT8, "B": INT8, "a_scale": FLOAT, "b_scale": FLOAT, "a_zero_point": UINT8},
    )
    return op.Add(
        op.Mul(product(quantized, weight, _float_constant(1 / INT8_MAX), weight_scale, zero), largest), bias
    )


def _translate_attention(
    queries: Any,
    keys: Any,
    values: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """One node for attention of heads (B, heads, L, ·); its mask has one row per sentence (`padding_mask`).

    Torch and the engine differ if all keys of a row are hidden, but every text has a visible key.
    """
    assert (is_causal, scale, enable_gqa) == (False, None, False)  # `attend` uses nothing else
    assert attn_mask is None or tuple(attn_mask.shape[1:3]) == (1, 1)
    import onnx

    op = _opset()
    heads, dim = int(queries.shape[1]), int(queries.shape[3])
    inputs = [
        _merge_heads(queries),
        *(_merge_heads(each) if _is_split_here(each) else each for each in (keys, values)),
    ]
    if attn_mask is not None:
        visible = op.Reshape(
            op.Greater(attn_mask, _float_constant(MASK_VALUE)), op.Constant(value_ints=[0, -1])
        )
        inputs += [None, op.Cast(visible, to=onnx.TensorProto.INT32)]
    attend = _microsoft_op(
        "MultiHeadAttention",
        {"query": FLOAT, "key": FLOAT, "value": FLOAT, "bias": FLOAT, "key_padding_mask": INT32},
        attributes={"num_heads": "INT", "mask_filter_value": "FLOAT"},
    )
    found = op.Reshape(
        attend(*inputs, num_heads=heads, mask_filter_value=MASK_VALUE),
        op.Constant(value_ints=[0, 0, heads, dim]),
    )
    return op.Transpose(found, perm=[0, 2, 1, 3])


def _is_split_here(heads: Any) -> bool:
    """Whether the graph splits these heads itself, so that they are side by side in memory."""
    producer = heads.producer()
    return producer is not None and producer.op_type == "Transpose"


def _merge_heads(heads: Any) -> Any:
    """Heads (B, heads, L, ·) as (B, L, W); this transposition and the one that split them cancel out."""
    op, (_, count, _, dim) = _opset(), heads.shape
    side_by_side = op.Transpose(heads, perm=[0, 2, 1, 3])
    return op.Reshape(side_by_side, op.Constant(value_ints=[0, 0, int(count) * int(dim)]))


def _opset() -> Any:
    import onnxscript

    return cast(Any, onnxscript).opset18


def _float_constant(value: float) -> Any:
    return _opset().Constant(value_float=float(value))


def _microsoft_op(
    name: str, inputs: Mapping[str, str], *, attributes: Mapping[str, str] | None = None
) -> Any:
    """An operator of onnxruntime's own by its name; all inputs but the first are optional."""
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
        outputs=[schema.FormalParameter("output", FLOAT)],
        attributes=[
            schema.Attribute(each, getattr(schema.AttrType, kind))
            for each, kind in (attributes or {}).items()
        ],
    )
    values = cast(Any, onnxscript).values
    return values.Op(values.Opset("com.microsoft", 1), name, described)
