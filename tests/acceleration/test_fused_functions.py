"""Fused functions are torch's, values and gradients, and compile to as few operations as they should."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.nn.functional import linear

from noise2text.acceleration import fused_functions as functions
from noise2text.core.random import gaussian_noise, make_key
from noise2text.diffusion.losses import token_nll
from noise2text.nn.embeddings import ComputedLogits, ProjectedLogits

VOCABULARY, DIM = 77, 5  # no multiple of 8


def product(*, bias: bool) -> ProjectedLogits:
    torch.manual_seed(0)
    shapes = ((2, 6, DIM), (VOCABULARY, DIM), (VOCABULARY,))
    states, weight, shift = (torch.randn(shape, requires_grad=True) for shape in shapes)
    return ProjectedLogits(states, weight, shift if bias else None)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("bias", [True, False])
def test_padded_logits_have_the_nll_and_the_gradients_of_plain_ones(bias: bool) -> None:
    tokens = torch.randint(VOCABULARY, (2, 6))
    loss_weights = torch.rand(2, 2, 6)

    def outputs_and_gradients(function: Callable[..., tuple[Tensor, Tensor]]) -> list[Tensor]:
        scores = product(bias=bias)
        nll, mean = function(scores, tokens)
        (loss_weights[0] * nll + loss_weights[1] * mean).sum().backward()
        given = [scores.states, scores.weight, *([scores.bias] if scores.bias is not None else [])]
        return [nll, mean, *(tensor.grad for tensor in given if tensor.grad is not None)]

    found, expected = outputs_and_gradients(functions.token_nll), outputs_and_gradients(token_nll)
    assert len(found) == len(expected) == (5 if bias else 4)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("uncompiled")
def test_padded_logits_do_not_count_and_get_no_gradient() -> None:
    logits = functions.padded_logits(product(bias=True)).detach()
    assert logits.shape[-1] == 2 * functions.ALIGNMENT
    tokens = torch.randint(VOCABULARY, (2, 6))
    found = functions.nll_and_mean(logits, tokens, vocabulary=VOCABULARY)
    logits[..., VOCABULARY:] = 1e4
    logits.requires_grad_()
    changed = functions.nll_and_mean(logits, tokens, vocabulary=VOCABULARY)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, changed, strict=True))
    (changed[0] + changed[1]).sum().backward()
    assert logits.grad is not None
    assert logits.grad[..., VOCABULARY:].abs().max() == 0
    assert (logits.grad[..., :VOCABULARY] != 0).all()


def test_computed_logits_are_not_padded() -> None:
    known = ComputedLogits(torch.randn(2, 3, VOCABULARY))
    assert known.vocabulary == VOCABULARY
    assert functions.padded_logits(known) is known.logits()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_the_nll_is_the_cross_entropy_however_large_the_logits(size: float) -> None:
    torch.manual_seed(1)
    logits, tokens = size * torch.randn(4, VOCABULARY), torch.randint(VOCABULARY, (4,))
    nll, _ = functions.nll_and_mean(logits, tokens)
    expected = torch.nn.functional.cross_entropy(logits, tokens, reduction="none")
    assert torch.allclose(nll, expected, rtol=1e-5, atol=1e-5)


def graphs(function: Callable[..., Any], *given: Any) -> list[set[str]]:
    """The operations of a function's compiled graphs, forward and backward."""
    operations: list[set[str]] = []

    def look(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        operations.append({str(node.target) for node in graph.graph.nodes if node.op == "call_function"})
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    traced = torch.compile(function, fullgraph=True, backend=aot_autograd(fw_compiler=look, bw_compiler=look))
    sum(part.sum() for part in traced(*given)).backward()
    return operations


def test_the_gradient_of_the_nll_has_no_gather_and_no_scatter() -> None:
    """Elementwise: nothing is summed, gathered or scattered, so that a compiler makes one kernel of it."""
    logits = torch.randn(4, VOCABULARY + 3, requires_grad=True)
    forward, backward = graphs(functions._nll_and_mean, logits, torch.randint(VOCABULARY, (4, 1)), VOCABULARY)
    assert any("sum" in name for name in forward)
    for name in backward:
        assert not any(word in name for word in ("scatter", "gather", "index", "sum", "amax")), name


def normed(x: Tensor, y: Tensor, dropout_rate: float) -> Tensor:
    width = x.shape[-1]
    return functions.add_norm(
        x, y, torch.ones(width), torch.zeros(width), eps=1e-5, dropout_rate=dropout_rate
    )


@pytest.mark.usefixtures("uncompiled")
def test_dropout_keeps_its_share_and_only_that_gets_a_gradient() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(8, 32, 64), torch.randn(8, 32, 64, requires_grad=True)
    out = normed(x, y, 0.25)
    (out * torch.randn_like(out)).sum().backward()
    assert y.grad is not None
    learns = y.grad != 0
    assert float(learns.float().mean()) == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / y.numel()) ** 0.5)
    scaled = torch.where(learns, y / 0.75, 0)
    assert torch.allclose(out, torch.nn.functional.layer_norm(x + scaled, (64,)), atol=1e-5)


@pytest.mark.usefixtures("uncompiled")
def test_dropout_comes_from_torchs_seed_and_is_another_each_time() -> None:
    x, y = torch.zeros(64, 32), torch.randn(64, 32)
    torch.manual_seed(3)
    first, second = normed(x, y, 0.5), normed(x, y, 0.5)
    torch.manual_seed(3)
    assert torch.equal(normed(x, y, 0.5), first)
    assert not torch.equal(first, second)


def test_positions_are_dropped_independently_of_each_other_and_of_other_seeds() -> None:
    """Correlations of masks with themselves shifted, and with others, are those of chance."""
    dropout_rate, like = 0.1, torch.empty(512, 768)
    torch.manual_seed(0)
    masks = [
        functions.dropout_mask(
            like, torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32), dropout_rate
        ).double()
        - (1 - dropout_rate)
        for _ in range(4)
    ]
    chance = 5 * dropout_rate * (1 - dropout_rate) / like.numel() ** 0.5
    for number, mask in enumerate(masks):
        for shift in (1, 2, 3, 64, 767, 768, 769, 1536):
            flat = mask.flatten()
            assert abs(float((flat[shift:] * flat[:-shift]).mean())) < chance
        for other in masks[:number]:
            assert abs(float((mask * other).mean())) < chance
        for across in (0, 1):  # no row and no column is favoured
            spread = float(mask.mean(across).var() * mask.shape[across] / (dropout_rate * (1 - dropout_rate)))
            assert spread == pytest.approx(1, abs=0.25)


def test_shifted_masks_with_a_common_seed_differ() -> None:
    """Positions and first seeds are summed: where two sums are equal, the second seeds keep masks apart."""
    torch.manual_seed(1)
    like, seeds = torch.empty(256, 256), torch.randint(-(2**31), 2**31, (8,), dtype=torch.int32)
    first = torch.tensor(5, dtype=torch.int32)
    masks = [
        functions.dropout_mask(like, torch.stack([first + n, seed]), 0.5).flatten()[8 - n :][:60_000]
        for n, seed in enumerate(seeds)
    ]
    for number, mask in enumerate(masks):
        for other in masks[:number]:
            assert float((mask == other).float().mean()) == pytest.approx(0.5, abs=0.05)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("dim", [4, 5])
def test_fused_noise_is_the_same_noise(dim: int) -> None:
    keys = make_key(3, torch.arange(6))
    expected = gaussian_noise(keys, 2, 7, dim)
    assert torch.equal(gaussian_noise(keys, 2, 7, dim, normal_sampler=functions.normal), expected)
    assert expected.shape == (6, 7, dim)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_fused_product_is_torchs_and_has_its_gradients(precision: torch.dtype) -> None:
    def outputs_and_gradients(function: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> list[Tensor]:
        torch.manual_seed(2)
        given = [torch.randn(shape, requires_grad=True) for shape in ((3, 4, 8), (16, 8), (16,))]
        with torch.autocast("cpu", precision, enabled=precision != torch.float32, cache_enabled=False):
            out = function(*given)
        assert out.dtype == precision
        (out * torch.randn(out.shape)).sum().backward()
        return [out.detach(), *(tensor.grad for tensor in given if tensor.grad is not None)]

    close = 1e-5 if precision == torch.float32 else 2e-2
    for mine, theirs in zip(
        outputs_and_gradients(functions.linear), outputs_and_gradients(linear), strict=True
    ):
        assert mine.dtype == theirs.dtype
        assert torch.allclose(mine, theirs, atol=close * float(theirs.abs().max()))


@pytest.mark.usefixtures("uncompiled")
def test_a_product_in_three_parts_is_torchs_and_has_its_gradients() -> None:
    def outputs_and_gradients(
        function: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]],
    ) -> list[Tensor]:
        torch.manual_seed(2)
        given = [torch.randn(shape, requires_grad=True) for shape in ((3, 4, 8), (18, 8), (18,))]
        parts = function(*given)
        first, second, _ = (part * torch.randn(part.shape) for part in parts)  # one is asked for nothing
        (first.sum() + second.sum()).backward()
        return [part.detach() for part in parts] + [t.grad for t in given if t.grad is not None]

    expected = outputs_and_gradients(lambda x, weight, bias: linear(x, weight, bias).chunk(3, dim=-1))
    for mine, theirs in zip(outputs_and_gradients(functions.linear_qkv), expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_a_function_can_be_compiled_for_many_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch stops compiling after eight variants by default."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    compiled = functions._compile(lambda rows: rows + 1)
    for width in range(2, 14):
        assert torch.equal(compiled(torch.zeros(3, width)), torch.ones(3, width))


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("activation", [nn.GELU(), nn.GELU("tanh"), nn.ReLU(), nn.Tanh()])
def test_fused_activations_are_torchs(activation: nn.Module) -> None:
    mine, theirs = (torch.linspace(-3, 3, 24).view(2, 3, 4).requires_grad_() for _ in range(2))
    found, expected = functions.bias_activation(activation, mine), activation(theirs)
    assert torch.equal(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    assert mine.grad is not None
    assert theirs.grad is not None
    assert torch.equal(mine.grad, theirs.grad)
