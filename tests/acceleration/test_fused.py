"""Fused layers are the plain ones, values and gradients; a norm adds the bias that its sublayer left out."""

from __future__ import annotations

import copy
from itertools import permutations

import pytest
import torch
from torch import Tensor, nn

from noise2text.acceleration import fused_functions as functions
from noise2text.acceleration.fused import FusedAddNorm, FusedEncoderLayer, FusedFeedForward, fuse_layers
from noise2text.acceleration.triton_layers import accelerate_for_inference
from noise2text.nn.attention import padding_mask
from noise2text.nn.layers import EncoderLayer, LayerShape
from noise2text.nn.transformer import CausalAttention, CausalLayer


def plain_layer() -> EncoderLayer:
    torch.manual_seed(0)
    layer = EncoderLayer(LayerShape(8, 16, 2, dropout=0.0, activation=nn.GELU))
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def fused_layer() -> EncoderLayer:
    layer = plain_layer()
    fuse_layers(layer)
    return layer


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch, uncompiled: None) -> list[nn.Module]:
    """The linear layers whose biases are deferred, as on a GPU; nothing is compiled."""
    found: list[nn.Module] = []

    def deferred_bias(linear: nn.Module, x: Tensor) -> Tensor | None:
        found.append(linear)
        bias = linear.bias
        return bias if isinstance(bias, Tensor) else None

    monkeypatch.setattr(functions, "deferred_bias", deferred_bias)
    return found


def test_a_deferred_bias_is_added_once_and_gets_its_gradient(deferred: list[nn.Module]) -> None:
    def outputs(layer: EncoderLayer) -> list[Tensor]:
        out = layer(x, None)
        (out * torch.arange(80).view(2, 5, 8)).sum().backward()
        return [out.detach(), *(p.grad.clone() for p in layer.parameters() if p.grad is not None)]

    plain, x = plain_layer(), torch.randn(2, 5, 8)
    layer = fused_layer()
    found, expected = outputs(layer), outputs(plain)
    assert deferred == [layer.self_attention.output_projection, layer.feed_forward[3], layer.feed_forward[0]]
    assert len(found) == 1 + len(list(layer.parameters()))
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4 * float(theirs.abs().max()))


def test_a_forward_hook_sees_the_bias(deferred: list[nn.Module]) -> None:
    layer, x, calls = fused_layer(), torch.randn(2, 5, 8), []
    expected = layer(x, None)
    layer.feed_forward.register_forward_hook(lambda module, given, out: calls.append((given[0], out)))
    assert torch.allclose(layer(x, None), expected, atol=1e-5)
    assert deferred.count(layer.feed_forward[3]) == 1  # before the hook
    ((given, out),) = calls
    assert torch.allclose(out, nn.Sequential.forward(layer.feed_forward, given), atol=1e-5)


def test_rows_too_wide_for_the_kernel_add_their_own_bias(
    deferred: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "MAX_NORM_WIDTH", 7)
    monkeypatch.setattr(functions, "_can_fuse_bias", lambda x: True)
    norm = fused_layer().self_attention_norm
    x, y, input_bias = torch.randn(3, 2, 5, 8)
    found = functions.add_norm(
        x, y, norm.weight, norm.bias, eps=norm.eps, dropout_rate=0.0, input_bias=input_bias[0, 0]
    )
    assert torch.allclose(found, nn.LayerNorm.forward(norm, x + y + input_bias[0, 0]), atol=1e-5)
    monkeypatch.setattr(functions, "_can_fuse_bias", lambda x: False)
    layer = fused_layer()
    layer(x, None)
    assert deferred == [layer.feed_forward[0]]


def test_only_plain_linear_layers_in_training_defer_their_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    class Adapted(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    x, plain = torch.randn(3, 8), nn.Linear(8, 8)
    assert functions.deferred_bias(plain, x) is None  # on a CPU
    monkeypatch.setattr(functions, "_can_fuse_bias", lambda x: True)
    assert functions.deferred_bias(plain, x) is plain.bias
    for other in (Adapted(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8).eval(), nn.Identity()):
        assert functions.deferred_bias(other, x) is None


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("autocast", [False, True])
def test_a_norm_adds_the_bias_before_dropout(autocast: bool) -> None:
    norm, (x, y, input_bias) = FusedAddNorm(8, 0.5), torch.randn(3, 4, 8)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        torch.manual_seed(1)
        found = norm(x, y, input_bias[0])
        torch.manual_seed(1)
        assert torch.equal(found, norm(x, y + input_bias[0]))


def test_only_the_class_of_a_fused_layer_changes() -> None:
    plain, fast = plain_layer(), fused_layer()
    assert isinstance(fast, FusedEncoderLayer)
    assert list(fast.state_dict()) == list(plain.state_dict())
    copied = copy.deepcopy(fast)
    assert isinstance(copied.feed_forward, FusedFeedForward)
    x = torch.randn(2, 5, 8)
    assert torch.equal(copied.eval()(x, None), plain.eval()(x, None))


def test_a_layer_for_inference_can_be_fused_too_and_keeps_its_own_methods() -> None:
    for accelerate in permutations([accelerate_for_inference, fuse_layers]):
        torch.manual_seed(0)
        layer, x = CausalLayer(LayerShape(8, 16, 2, dropout=0.0)), torch.randn(2, 5, 8)
        keys, values = torch.randn(2, 2, 2, 3, 4)
        rest = (padding_mask(torch.zeros(2, 5, dtype=torch.bool), x), keys, values)
        source_mask = padding_mask(torch.tensor([[False, False, True]] * 2), x)
        expected = layer(x, *rest, source_mask)
        for each in accelerate:
            each(layer)
        classes = [type(part) for part in layer.modules()]
        for each in accelerate:
            each(layer)
        assert [type(part) for part in layer.modules()] == classes
        assert isinstance(layer.self_attention, CausalAttention)
        assert torch.allclose(layer(x, *rest, source_mask), expected, atol=1e-6)
        assert torch.equal(layer.eval()(x, *rest, source_mask), expected)
