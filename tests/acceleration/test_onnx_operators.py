"""One operator of onnxruntime is what torch computes by many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

from noise2text.acceleration.int8 import Int8Linear, has_fast_int8
from noise2text.acceleration.onnx_export import OnnxGraph, export_onnx, onnx_graphs
from noise2text.acceleration.onnx_runtime import OnnxSession
from noise2text.nn.attention import padding_mask
from noise2text.nn.layers import CrossAttention, SelfAttention

from ..conftest import Make


def session(module: nn.Module, **inputs: tuple[Tensor, dict[int, str]]) -> OnnxSession:
    return OnnxSession(export_onnx(OnnxGraph(module.eval(), inputs, ("output",))))


def kinds(graph: bytes) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load_from_string(graph).graph.node)


@pytest.mark.skipif(not has_fast_int8(), reason="sums of 8-bit products are not exact on this CPU")
@pytest.mark.parametrize("bias", [True, False])
def test_an_int8_layer_is_torchs_row_by_row(bias: bool) -> None:
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(96, 40, bias=bias))
    x = torch.randn(3, 7, 96) * torch.logspace(-3, 3, 7)[:, None]
    x[1, 4] = 0
    expected = layer(x)
    engine = session(layer, x=(torch.zeros(2, 5, 96), {0: "rows", 1: "length"}))
    (output,) = engine({"x": x})
    # A number halfway between two whole ones may be rounded to either: one count of one weight more or less.
    count = x.abs().amax(-1, keepdim=True) / 127 * (layer.weight.abs().amax(0) * layer.weight_scale)
    assert ((output - expected).abs() <= count + 1e-5).all()
    assert (output - expected).norm() < 1e-4 * expected.norm()
    assert torch.equal(output[1, 4], layer.bias)
    (alone,) = engine({"x": x[2:, 3:4]})
    torch.testing.assert_close(alone, output[2:, 3:4], rtol=1e-6, atol=1e-6)


class Attending(nn.Module):
    """Attention as the layers of a network call it."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross_attention = SelfAttention(16, 4), CrossAttention(16, 4)

    def forward(self, x: Tensor, padding: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
        seen = self.own(x, padding_mask(padding, x)) + self.own(x, None)
        return seen + self.cross_attention(x, keys, values, padding_mask(hidden, x))


def attended(sentences: int, length: int, width: int) -> dict[str, Tensor]:
    padding = torch.arange(length) >= torch.randint(1, length + 1, (sentences, 1))
    hidden = torch.arange(width) >= torch.randint(1, width + 1, (sentences, 1))
    keys, values = torch.randn(2, sentences, 4, width, 4)
    given = {"x": 40 * torch.randn(sentences, length, 16), "padding": padding}
    return given | {"keys": keys, "values": values, "hidden": hidden}


def test_attention_is_torchs_at_any_size() -> None:
    torch.manual_seed(0)
    module = Attending()
    own, there = {0: "rows", 1: "length"}, {0: "rows", 2: "width"}
    axes = {"x": own, "padding": own, "keys": there, "values": there, "hidden": {0: "rows", 1: "width"}}
    engine = session(module, **{name: (each, axes[name]) for name, each in attended(2, 3, 5).items()})
    for sizes in ((1, 1, 1), (1, 25, 25), (6, 9, 4)):
        given = attended(*sizes)
        with torch.inference_mode():
            expected = module(**given)
        torch.testing.assert_close(engine(given)[0], expected, atol=1e-4, rtol=1e-4)


def test_hidden_keys_change_nothing_however_large_they_are() -> None:
    """With the engine's default of −10,000, hidden keys would win where the others score less."""
    torch.manual_seed(0)
    module, given = Attending(), attended(1, 3, 2)
    given["hidden"] = torch.tensor([[False, True]])
    engine = session(module, **{name: (each, {}) for name, each in given.items()})
    with torch.inference_mode():
        queries = module.cross_attention.query_projection(given["x"]).unflatten(-1, (4, 4)).transpose(1, 2)
        given["keys"][:, :, 0] = -1e5 * queries[:, :, 0].sign()  # what the first position likes least
        given["keys"][:, :, 1] = 0
        torch.testing.assert_close(engine(given)[0], module(**given), atol=1e-3, rtol=1e-3)


def test_a_step_has_one_product_per_layer_and_one_node_per_attention(small: Make) -> None:
    model: Any = small().move_to(torch.device("cpu"), "int8")
    layers = sum(isinstance(each, Int8Linear) for each in model.denoiser.modules())
    found = onnx_graphs(model.denoiser, timestep_per_position=False)
    both = kinds(export_onnx(found["encode"])) + kinds(export_onnx(found["step"]))
    # P′ projects z and the self-condition at once, so no layer of the network is called twice.
    assert both["MatMulIntegerToFloat"] == layers
    assert both["QuantizeLinear"] == layers
    assert both["MatMul"] == both["Softmax"] == both["Round"] == 0
    encoder, decoder = len(model.denoiser.encoder.layers), len(model.denoiser.layers)
    assert both["MultiHeadAttention"] == encoder + 2 * decoder
