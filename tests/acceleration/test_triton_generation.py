"""Our own kernels are torch's operations; they need a GPU.

Without one, TRITON_INTERPRET=1 runs the sums operation by operation where triton is installed.
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from noise2text.acceleration.triton_layers import byte_mask
from noise2text.nn.attention import additive_mask, split_heads

GPU = torch.cuda.is_available()
INTERPRETED = not GPU and "TRITON_INTERPRET" in os.environ and importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if GPU else "cpu"

pytestmark = pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a GPU")
SIZES = [(1, 1), (70, 5), (3001, 130), *([(40_000, 768), (600_000, 3)] if GPU else [])]
on_a_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")


@on_a_gpu
@pytest.mark.parametrize(
    ("rows", "heads", "queries", "keys", "dim"),
    [(3, 2, 7, 7, 16), (10, 8, 28, 28, 64), (1, 8, 280, 28, 64), (2, 4, 100, 13, 32), (300, 4, 64, 64, 128)],
)
def test_attention_is_torchs(rows: int, heads: int, queries: int, keys: int, dim: int) -> None:
    from noise2text.acceleration.triton_generation import attend

    torch.manual_seed(0)
    q = torch.randn(rows, queries, heads * dim, device="cuda", dtype=torch.bfloat16)
    both = torch.randn(rows, keys, 2 * heads * dim, device="cuda", dtype=torch.bfloat16).chunk(2, dim=-1)
    padding = torch.arange(keys, device="cuda") >= torch.randint(1, keys + 1, (rows, 1), device="cuda")
    parts = [split_heads(part, heads) for part in (q, *both)]
    with torch.inference_mode():
        hidden = byte_mask(padding, q)
        assert hidden is not None
        ours = attend(parts[0], parts[1], parts[2], hidden)
    mask = additive_mask(padding, q.float())[:, None, None]
    full = [part.float() for part in parts]
    theirs = scaled_dot_product_attention(full[0], full[1], full[2], attn_mask=mask)
    torch.testing.assert_close(ours.float(), theirs.transpose(1, 2).flatten(2), atol=0.03, rtol=0.02)


@on_a_gpu
def test_add_and_norm_is_torchs() -> None:
    from noise2text.acceleration.triton_generation import add_norm

    torch.manual_seed(0)
    x, y = torch.randn(2, 7, 28, 96, device="cuda", dtype=torch.bfloat16)
    weight, bias = torch.randn(2, 96, device="cuda", dtype=torch.bfloat16)
    theirs = layer_norm((x + y).float(), (96,), weight.float(), bias.float(), 1e-5)
    torch.testing.assert_close(add_norm(x, y, weight, bias, 1e-5).float(), theirs, atol=0.03, rtol=0.02)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("rows", "width"), SIZES)
def test_columns_are_summed_as_in_float64(rows: int, width: int, precision: torch.dtype) -> None:
    from noise2text.acceleration.triton_generation import column_sums

    torch.manual_seed(0)
    x = torch.randn(rows, width, device=DEVICE).to(precision)
    ours = column_sums(x)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), x.double().sum(0), atol=1e-6 * rows**0.5 * 10, rtol=1e-5)
    assert torch.equal(ours, column_sums(x))  # added in the same order
    wide = torch.randn(rows, 2 * width, device=DEVICE).to(precision)
    for part in (wide[:, :width], wide[:, ::2], x[:1].expand(rows, width)):
        torch.testing.assert_close(
            column_sums(part).double(), part.double().sum(0), atol=1e-6 * rows**0.5 * 10, rtol=1e-5
        )


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("rows", "width"), [(1, 8), (70, 5), (601, 130), (3000, 320)])
def test_concatenated_matrices_are_there_and_summed(rows: int, width: int, precision: torch.dtype) -> None:
    from noise2text.acceleration.triton_generation import concat_with_column_sums

    torch.manual_seed(0)
    one, two = torch.randn(rows, width), torch.randn(rows, 2 * width)[:, width:]
    three = torch.randn(width, rows).t()
    parts = [part.to(DEVICE, precision) for part in (one, two, three)]
    concatenated, sums = concat_with_column_sums(*parts)
    assert torch.equal(concatenated, torch.cat(parts, dim=1))
    assert sums.dtype == torch.float32
    torch.testing.assert_close(sums.double(), concatenated.double().sum(0), atol=1e-5 * rows**0.5, rtol=1e-5)
    assert torch.equal(sums, concat_with_column_sums(*parts)[1])


@on_a_gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # the first product of autograd's own thread
def test_the_gradient_of_a_bias_is_the_sum_of_all_rows() -> None:
    from noise2text.acceleration.fused_functions import linear

    torch.manual_seed(0)
    x = torch.randn(5, 700, 64, device="cuda")
    weight, bias = (torch.randn(shape, device="cuda", requires_grad=True) for shape in ((96, 64), (96,)))
    grad_output = torch.randn(5, 700, 96, device="cuda", dtype=torch.bfloat16)
    with torch.autocast("cuda", torch.bfloat16):
        out = linear(x, weight, bias)
    out.backward(grad_output)
    assert bias.grad is not None
    torch.testing.assert_close(bias.grad.double(), grad_output.double().sum((0, 1)), atol=1e-3, rtol=1e-5)
