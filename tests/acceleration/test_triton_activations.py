"""Activations that add a bias are torch's, and so are their gradients; they need a GPU.

Without one, TRITON_INTERPRET=1 runs them operation by operation where triton is installed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, relu

GPU = torch.cuda.is_available()
INTERPRETED = not GPU and "TRITON_INTERPRET" in os.environ and importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if GPU else "cpu"
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu}

pytestmark = pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a GPU")

Activate = Callable[[Tensor, Tensor], Tensor]


def ours(name: str) -> Activate:
    from noise2text.acceleration.triton_activations import bias_activation

    return lambda x, input_bias: bias_activation(x, input_bias, is_gelu=name == "gelu")


def torchs(name: str) -> Activate:
    return lambda x, input_bias: ACTIVATIONS[name](x + input_bias)


def given(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """A product, the bias of its last dimension, and the gradient of the output."""
    torch.manual_seed(shape[0] + shape[-1])
    x, grad_output, input_bias = 2 * torch.randn(shape), torch.randn(shape), torch.randn(shape[-1])
    return x.to(DEVICE, dtype), input_bias.to(DEVICE), grad_output.to(DEVICE, dtype)


def outputs_and_gradients(
    function: Activate, x: Tensor, input_bias: Tensor, grad_output: Tensor
) -> list[Tensor]:
    own = [tensor.detach().clone().requires_grad_() for tensor in (x, input_bias)]
    out = function(*own)
    out.backward(grad_output)
    return [out.detach(), *(tensor.grad for tensor in own if tensor.grad is not None)]


SHAPES = [(1, 1), (7, 5), (70, 130), (3, 11, 300), (2, 600, 64)]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_activations_and_all_gradients_are_torchs(name: str, shape: tuple[int, ...]) -> None:
    x, input_bias, grad_output = given(*shape)
    found = outputs_and_gradients(ours(name), x, input_bias, grad_output)
    expected = outputs_and_gradients(torchs(name), x.double(), input_bias.double(), grad_output.double())
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.double(), theirs, atol=2e-6 * x[..., 0].numel() ** 0.5, rtol=2e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_outputs_are_in_half_precision_and_the_gradient_of_a_bias_in_float32(name: str) -> None:
    x, input_bias, grad_output = given(90, 320, dtype=torch.bfloat16)
    out, grad_x, grad_input_bias = outputs_and_gradients(ours(name), x, input_bias, grad_output)
    assert (out.dtype, grad_x.dtype, grad_input_bias.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    expected = outputs_and_gradients(torchs(name), x.double(), input_bias.double(), grad_output.double())
    for mine, theirs in zip((out, grad_x), expected, strict=False):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-6, rtol=2**-7)
    torch.testing.assert_close(grad_input_bias.double(), expected[2], atol=2e-5, rtol=1e-5)


def test_the_error_of_gelu_is_below_a_millionth_everywhere() -> None:
    x = torch.linspace(-12, 12, 40_000, device=DEVICE).view(8, 5000)
    zero = torch.zeros(5000, device=DEVICE)
    found = outputs_and_gradients(ours("gelu"), x, zero, torch.ones_like(x))
    expected = outputs_and_gradients(torchs("gelu"), x.double(), zero.double(), torch.ones_like(x).double())
    for mine, theirs in zip(found[:2], expected, strict=False):
        assert ((mine - theirs).abs() <= 1e-6 * theirs.abs().clamp(min=1)).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_stays_nan_and_large_numbers_stay_themselves(name: str) -> None:
    x = torch.tensor([[torch.nan], [torch.inf], [1e30], [-1e30], [0.0]], device=DEVICE)
    out, grad_x, _ = outputs_and_gradients(ours(name), x, torch.zeros(1, device=DEVICE), torch.ones_like(x))
    assert out[0].isnan().all()
    assert out[1:, 0].tolist() == pytest.approx([torch.inf, 1e30, 0, 0])
    assert grad_x[2:4, 0].tolist() == [1, 0]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_same_numbers_give_the_same_bits(name: str) -> None:
    x, input_bias, grad_output = given(3000 if GPU else 300, 130, dtype=torch.bfloat16)
    first, second = (outputs_and_gradients(ours(name), x, input_bias, grad_output) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_transposed_inputs_have_the_same_gradients() -> None:
    """Inputs and gradients may have any memory order."""
    x, input_bias, grad_output = given(40, 24)
    expected = outputs_and_gradients(ours("gelu"), x, input_bias, grad_output)
    across = outputs_and_gradients(
        ours("gelu"), x.t().contiguous().t(), input_bias, grad_output.t().contiguous().t()
    )
    for mine, theirs in zip(across, expected, strict=True):
        assert torch.equal(mine, theirs)
