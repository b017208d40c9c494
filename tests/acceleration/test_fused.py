"""What is fused is what it stands for, values and gradients; what it is written for shows in its graphs."""

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

from noise2text.acceleration import fused_functions as fused
from noise2text.core.random import gaussian_noise, make_key
from noise2text.diffusion.losses import token_nll
from noise2text.nn.embeddings import ComputedLogits, ProjectedLogits

VOCABULARY, DIM = 77, 5  # no multiple of 8


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_compile", lambda function: function)


def product(*, bias: bool) -> ProjectedLogits:
    torch.manual_seed(0)
    shapes = ((2, 6, DIM), (VOCABULARY, DIM), (VOCABULARY,))
    states, weight, shift = (torch.randn(shape, requires_grad=True) for shape in shapes)
    return ProjectedLogits(states, weight, shift if bias else None)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("bias", [True, False])
def test_an_aligned_product_surprises_as_the_plain_one_and_has_its_gradients(bias: bool) -> None:
    tokens = torch.randint(VOCABULARY, (2, 6))
    places = torch.rand(2, 2, 6)

    def learned(how: Callable[..., tuple[Tensor, Tensor]]) -> list[Tensor]:
        scores = product(bias=bias)
        at, mean = how(scores, tokens)
        (places[0] * at + places[1] * mean).sum().backward()
        given = [scores.states, scores.weight, *([scores.bias] if scores.bias is not None else [])]
        return [at, mean, *(tensor.grad for tensor in given if tensor.grad is not None)]

    found, expected = learned(fused.token_nll), learned(token_nll)
    assert len(found) == len(expected) == (5 if bias else 4)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("uncompiled")
def test_what_aligns_a_product_counts_for_nothing_and_gets_no_gradient() -> None:
    logits = fused.padded_logits(product(bias=True)).detach()
    assert logits.shape[-1] == 2 * fused.ALIGNMENT
    tokens = torch.randint(VOCABULARY, (2, 6))
    found = fused.nll_and_mean(logits, tokens, vocabulary=VOCABULARY)
    logits[..., VOCABULARY:] = 1e4
    logits.requires_grad_()
    changed = fused.nll_and_mean(logits, tokens, vocabulary=VOCABULARY)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, changed, strict=True))
    (changed[0] + changed[1]).sum().backward()
    assert logits.grad is not None
    assert logits.grad[..., VOCABULARY:].abs().max() == 0
    assert (logits.grad[..., :VOCABULARY] != 0).all()


def test_scores_that_are_known_are_left_as_they_are() -> None:
    known = ComputedLogits(torch.randn(2, 3, VOCABULARY))
    assert known.vocabulary == VOCABULARY
    assert fused.padded_logits(known) is known.logits()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_surprises_are_cross_entropies_however_large_the_logits(size: float) -> None:
    torch.manual_seed(1)
    logits, tokens = size * torch.randn(4, VOCABULARY), torch.randint(VOCABULARY, (4,))
    at, _ = fused.nll_and_mean(logits, tokens)
    expected = torch.nn.functional.cross_entropy(logits, tokens, reduction="none")
    assert torch.allclose(at, expected, rtol=1e-5, atol=1e-5)


def graphs(function: Callable[..., Any], *given: Any) -> list[set[str]]:
    """The operations of a function's compiled graphs, forward and backward."""
    seen: list[set[str]] = []

    def look(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        seen.append({str(node.target) for node in graph.graph.nodes if node.op == "call_function"})
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    traced = torch.compile(function, fullgraph=True, backend=aot_autograd(fw_compiler=look, bw_compiler=look))
    sum(part.sum() for part in traced(*given)).backward()
    return seen


def test_the_gradient_of_surprises_is_one_reading_and_one_writing() -> None:
    """Place by place: nothing is summed, gathered or scattered, so that a compiler makes one kernel of it."""
    logits = torch.randn(4, VOCABULARY + 3, requires_grad=True)
    forward, backward = graphs(fused._nll_and_mean, logits, torch.randint(VOCABULARY, (4, 1)), VOCABULARY)
    assert any("sum" in name for name in forward)
    for name in backward:
        assert not any(word in name for word in ("scatter", "gather", "index", "sum", "amax")), name


def normed(x: Tensor, y: Tensor, dropout_rate: float) -> Tensor:
    width = x.shape[-1]
    return fused.add_norm(x, y, torch.ones(width), torch.zeros(width), eps=1e-5, dropout_rate=dropout_rate)


@pytest.mark.usefixtures("uncompiled")
def test_dropout_keeps_its_share_and_only_what_is_kept_learns() -> None:
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


def test_places_are_dropped_independently_of_each_other_and_of_other_seeds() -> None:
    """Correlations of masks with themselves shifted, and with others, are those of chance."""
    dropout_rate, like = 0.1, torch.empty(512, 768)
    torch.manual_seed(0)
    masks = [
        fused.dropout_mask(
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


def test_masks_that_share_a_seed_and_are_shifted_have_little_in_common() -> None:
    """Places and first seeds are summed: where two sums meet, the second seeds keep masks apart."""
    torch.manual_seed(1)
    like, seeds = torch.empty(256, 256), torch.randint(-(2**31), 2**31, (8,), dtype=torch.int32)
    first = torch.tensor(5, dtype=torch.int32)
    masks = [
        fused.dropout_mask(like, torch.stack([first + n, seed]), 0.5).flatten()[8 - n :][:60_000]
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
    assert torch.equal(gaussian_noise(keys, 2, 7, dim, normal_sampler=fused.normal), expected)
    assert expected.shape == (6, 7, dim)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_fused_product_is_torchs_and_has_its_gradients(precision: torch.dtype) -> None:
    def learned(how: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> list[Tensor]:
        torch.manual_seed(2)
        given = [torch.randn(shape, requires_grad=True) for shape in ((3, 4, 8), (16, 8), (16,))]
        with torch.autocast("cpu", precision, enabled=precision != torch.float32, cache_enabled=False):
            out = how(*given)
        assert out.dtype == precision
        (out * torch.randn(out.shape)).sum().backward()
        return [out.detach(), *(tensor.grad for tensor in given if tensor.grad is not None)]

    close = 1e-5 if precision == torch.float32 else 2e-2
    for mine, theirs in zip(learned(fused.linear), learned(linear), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.allclose(mine, theirs, atol=close * float(theirs.abs().max()))


@pytest.mark.usefixtures("uncompiled")
def test_a_product_in_thirds_is_torchs_in_parts_and_has_its_gradients() -> None:
    def learned(how: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]) -> list[Tensor]:
        torch.manual_seed(2)
        given = [torch.randn(shape, requires_grad=True) for shape in ((3, 4, 8), (18, 8), (18,))]
        parts = how(*given)
        first, second, _ = (part * torch.randn(part.shape) for part in parts)  # one is asked for nothing
        (first.sum() + second.sum()).backward()
        return [part.detach() for part in parts] + [t.grad for t in given if t.grad is not None]

    expected = learned(lambda x, weight, bias: linear(x, weight, bias).chunk(3, dim=-1))
    for mine, theirs in zip(learned(fused.linear_qkv), expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_a_function_can_be_compiled_for_many_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch gives up after eight variants, unless it is told to be patient."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    compiled = fused._compile(lambda rows: rows + 1)
    for width in range(2, 14):
        assert torch.equal(compiled(torch.zeros(3, width)), torch.ones(3, width))


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("activation", [nn.GELU(), nn.GELU("tanh"), nn.ReLU(), nn.Tanh()])
def test_fused_activations_are_the_layers_that_they_stand_for(activation: nn.Module) -> None:
    mine, theirs = (torch.linspace(-3, 3, 24).view(2, 3, 4).requires_grad_() for _ in range(2))
    found, expected = fused.bias_activation(activation, mine), activation(theirs)
    assert torch.equal(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    assert mine.grad is not None
    assert theirs.grad is not None
    assert torch.equal(mine.grad, theirs.grad)
