"""A residual with bias, dropout and norm is torch's, and so are its gradients; they need a GPU.

Without one, TRITON_INTERPRET=1 runs them operation by operation where triton is installed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from noise2text.acceleration import fused_functions as functions
from noise2text.acceleration.fused import fuse_layers
from noise2text.nn.attention import padding_mask, split_heads
from noise2text.nn.layers import DecoderLayer, EncoderLayer, LayerShape

GPU = torch.cuda.is_available()
INTERPRETED = not GPU and "TRITON_INTERPRET" in os.environ and importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if GPU else "cpu"

pytestmark = pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a GPU")

Norm = Callable[..., Tensor]  # of x, y, the shift, the weight and the bias


def ours(dropout_rate: float, seeds: Tensor | None, dtype: torch.dtype = torch.float32) -> Norm:
    from noise2text.acceleration.triton_norms import Dropout, add_norm

    def normed(x: Tensor, y: Tensor, input_bias: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
        dropout = Dropout(dropout_rate, seeds)
        return add_norm(x, y, input_bias, weight=weight, bias=bias, eps=1e-5, dropout=dropout, dtype=dtype)

    return normed


def torchs(dropout_rate: float, seeds: Tensor | None) -> Norm:
    def normed(x: Tensor, y: Tensor, input_bias: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
        y = y if input_bias is None else y + input_bias
        if seeds is not None:
            y = torch.where(
                functions.dropout_mask(y.flatten(0, -2), seeds, dropout_rate).view_as(y),
                y / (1 - dropout_rate),
                0,
            )
        return layer_norm(x + y, x.shape[-1:], weight, bias, 1e-5)

    return normed


def given(
    *shape: int, dropout_rate: float, dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], Tensor, Tensor | None]:
    """x, y, a bias, the norm's weight and bias; the gradient of the output; seeds."""
    torch.manual_seed(shape[0] + shape[-1])
    states = [(torch.randn(shape) + offset).to(DEVICE, dtype) for offset in (0.5, 0, 0)]
    vectors = [torch.randn(shape[-1]).to(DEVICE) for _ in range(3)]
    seeds = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32).to(DEVICE) if dropout_rate else None
    return [*states[:2], *vectors], states[2], seeds


def outputs_and_gradients(
    function: Norm, tensors: list[Tensor], grad_output: Tensor, *, shifted: bool = True
) -> list[Tensor]:
    own = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    x, y, input_bias, weight, bias = own
    out = function(x, y, input_bias if shifted else None, weight, bias)
    out.backward(grad_output)
    return [out.detach(), *(tensor.grad for tensor in own if tensor.grad is not None)]


def exact(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.double() for tensor in tensors]


SHAPES = [(1, 1), (7, 5), (70, 130), (3, 11, 320), (2, 9, 768), (5, 1024)]


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("dropout_rate", [0.0, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_add_norm_and_all_gradients_are_torchs(
    shape: tuple[int, ...], dropout_rate: float, shifted: bool
) -> None:
    tensors, grad_output, seeds = given(*shape, dropout_rate=dropout_rate)
    found = outputs_and_gradients(ours(dropout_rate, seeds), tensors, grad_output, shifted=shifted)
    expected = outputs_and_gradients(
        torchs(dropout_rate, seeds), exact(tensors), grad_output.double(), shifted=shifted
    )
    assert len(found) == (6 if shifted else 5)
    for mine, theirs in zip(found, expected, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        torch.testing.assert_close(mine.double() / scale, theirs / scale, atol=5e-6, rtol=0)


def test_programs_take_several_tiles_of_many_rows() -> None:
    tensors, grad_output, seeds = given(40_001 if GPU else 2_100, 24 if GPU else 5, dropout_rate=0.1)
    found = outputs_and_gradients(ours(0.1, seeds), tensors, grad_output)
    expected = outputs_and_gradients(torchs(0.1, seeds), exact(tensors), grad_output.double())
    for mine, theirs in zip(found, expected, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        torch.testing.assert_close(mine.double() / scale, theirs / scale, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dropout_rate", [0.0, 0.1])
def test_outputs_are_in_half_precision_and_gradients_of_parameters_in_float32(dropout_rate: float) -> None:
    tensors, grad_output, seeds = given(50, 320, dropout_rate=dropout_rate, dtype=torch.bfloat16)
    found = outputs_and_gradients(ours(dropout_rate, seeds, torch.bfloat16), tensors, grad_output)
    assert [tensor.dtype for tensor in found] == [torch.bfloat16] * 3 + [torch.float32] * 3
    expected = outputs_and_gradients(torchs(dropout_rate, seeds), exact(tensors), grad_output.double())
    for mine, theirs in zip(found[:3], expected, strict=False):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-5, rtol=2**-7)
    for mine, theirs in zip(found[3:], expected[3:], strict=True):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-4, rtol=1e-5)


def test_float32_states_and_half_products_have_gradients_of_their_own_dtype() -> None:
    tensors, grad_output, _ = given(9, 40, dropout_rate=0.0)
    mixed = [tensors[0], tensors[1].bfloat16(), *tensors[2:]]
    found = outputs_and_gradients(ours(0.0, None, torch.bfloat16), mixed, grad_output.bfloat16())
    assert [tensor.dtype for tensor in found[:3]] == [torch.bfloat16, torch.float32, torch.bfloat16]
    expected = outputs_and_gradients(torchs(0.0, None), exact(mixed), grad_output.bfloat16().double())
    torch.testing.assert_close(found[1].double(), expected[1], atol=5e-6, rtol=1e-5)


def test_dropout_keeps_what_the_compiled_norm_keeps() -> None:
    """Where x and its gradient's weights say nothing, ∂y is 0 just where the mask is."""
    tensors, grad_output, seeds = given(33, 100, dropout_rate=0.4)
    assert seeds is not None
    grad_y = outputs_and_gradients(ours(0.4, seeds), tensors, grad_output)[2]
    assert torch.equal(grad_y != 0, functions.dropout_mask(grad_y, seeds, 0.4))


def test_rows_far_from_zero_are_normalized_as_well() -> None:
    tensors, grad_output, _ = given(6, 300, dropout_rate=0.0)
    tensors[0] += 300
    found = outputs_and_gradients(ours(0.0, None), tensors, grad_output)
    expected = outputs_and_gradients(torchs(0.0, None), exact(tensors), grad_output.double())
    torch.testing.assert_close(found[0].double(), expected[0], atol=2e-4, rtol=1e-4)


def test_the_same_numbers_give_the_same_bits() -> None:
    tensors, grad_output, seeds = given(3000 if GPU else 700, 96, dropout_rate=0.1, dtype=torch.bfloat16)
    first, second = (
        outputs_and_gradients(ours(0.1, seeds, torch.bfloat16), tensors, grad_output) for _ in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels, also without a GPU; nothing is compiled."""
    monkeypatch.setattr(functions, "_can_fuse_bias", lambda x: True)
    monkeypatch.setattr(functions, "_compile", None)
    if not GPU:
        from noise2text.acceleration import triton_generation as kernels

        monkeypatch.setattr(functions, "_column_sums", kernels.column_sums)
        monkeypatch.setattr(
            functions, "_concat_with_column_sums", lambda parts: kernels.concat_with_column_sums(*parts)
        )


@pytest.mark.usefixtures("everywhere")
def test_a_fused_norm_uses_the_kernel_and_broadcasts_y() -> None:
    tensors, grad_output, _ = given(4, 6, 40, dropout_rate=0.0)
    tensors[1] = tensors[1][0]  # (6, 40)

    def normed(x: Tensor, y: Tensor, input_bias: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
        return functions.add_norm(x, y, weight, bias, eps=1e-5, dropout_rate=0.0, input_bias=input_bias)

    found = outputs_and_gradients(normed, tensors, grad_output)
    for mine, theirs in zip(
        found, outputs_and_gradients(torchs(0.0, None), exact(tensors), grad_output.double()), strict=True
    ):
        torch.testing.assert_close(mine.double(), theirs, atol=2e-5, rtol=1e-5)


def passed(layer: nn.Module, x: Tensor, *rest: Tensor) -> list[Tensor]:
    """A layer's output for x, and the gradients of all of its parameters."""
    layer.zero_grad()
    own = x.detach().clone().requires_grad_()
    out: Tensor = layer(own, *rest)
    torch.manual_seed(9)
    (out * torch.randn(out.shape).to(out)).sum().backward()
    gradients = [parameter.grad for parameter in (own, *layer.parameters())]
    return [out.detach(), *(gradient for gradient in gradients if gradient is not None)]


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("kind", ["encoder", "encoder, gelu", "decoder"])
def test_a_fused_layer_defers_its_biases_and_has_the_same_gradients(kind: str) -> None:
    torch.manual_seed(0)
    activation = nn.GELU if "gelu" in kind else nn.ReLU
    shape = LayerShape(24, 40, 2, dropout=0.0, activation=activation)
    layer: EncoderLayer | DecoderLayer = DecoderLayer(shape) if kind == "decoder" else EncoderLayer(shape)
    layer.to(DEVICE)
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    x = torch.randn(3, 5, 24, device=DEVICE)
    mask = padding_mask(torch.zeros(3, 5, dtype=torch.bool, device=DEVICE), x)
    encoded = [split_heads(part, 2) for part in torch.randn(2, 3, 5, 24, device=DEVICE)]
    rest = [mask, *encoded, mask] if kind == "decoder" else [mask]
    expected = passed(layer, x, *rest)
    fuse_layers(layer)
    with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
        found = passed(layer, x, *(part if part.dim() < 4 else part.bfloat16() for part in rest))
    assert len(found) == len(expected) == 2 + len(list(layer.parameters()))
    for mine, theirs in zip(found, expected, strict=True):
        similar = torch.cosine_similarity(mine.double().flatten(), theirs.double().flatten(), dim=0)
        assert float(similar) > 0.999
        torch.testing.assert_close(mine.double().norm(), theirs.double().norm(), rtol=0.02, atol=0.02)
