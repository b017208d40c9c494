"""The cross-entropy without logits is torch's, with its gradients; it needs a GPU.

Without one, TRITON_INTERPRET=1 runs them operation by operation where triton is installed, in float32.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from noise2text.acceleration import fused_functions as functions
from noise2text.diffusion.losses import token_nll
from noise2text.nn.embeddings import ProjectedLogits

GPU = torch.cuda.is_available()
INTERPRETED = not GPU and "TRITON_INTERPRET" in os.environ and importlib.util.find_spec("triton") is not None
DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
CLOSE = 1e-2 if GPU else 1e-5  # of the largest: gradients of logits are rounded to the type of products

pytestmark = pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a GPU")

NllFunction = Callable[[Tensor, Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]


def ours(x: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor) -> tuple[Tensor, Tensor]:
    from noise2text.acceleration.triton_cross_entropy import nll_and_mean

    return nll_and_mean(x, weight, bias, tokens=tokens, dtype=DTYPE)


def torchs(x: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor) -> tuple[Tensor, Tensor]:
    logits = linear(x, weight, bias)
    return cross_entropy(logits, tokens, reduction="none"), -logits.log_softmax(-1).mean(-1)


def given(
    rows: int, words: int, dim: int, *, bias: bool = True, peaked: float = 0.0, right: int | None = None
) -> tuple[list[Tensor | None], Tensor]:
    """Factors that rounding leaves as they are, and tokens; peaked states lie near their token's row.

    Tokens are drawn from all words, or from the first `right` of them.
    """
    torch.manual_seed(rows + words + dim)
    tokens = torch.randint(right or words, (rows,))
    weight, shift = torch.randn(words, dim), torch.randn(words) if bias else None
    x = torch.randn(rows, dim) / dim**0.25 + peaked * weight[tokens]
    factors = [tensor.to(DTYPE).float() for tensor in (x, weight)]
    moved = [None if tensor is None else tensor.to(DEVICE) for tensor in (*factors, shift)]
    return moved, tokens.to(DEVICE)


def outputs_and_gradients(
    function: NllFunction,
    factors: list[Tensor | None],
    tokens: Tensor,
    loss_weights: Tensor,
    dtype: torch.dtype,
) -> list[Tensor]:
    """The nll, its mean, and the gradients of their sum with these weights at each row."""
    own = [
        None if tensor is None else tensor.detach().to(dtype, copy=True).requires_grad_()
        for tensor in factors
    ]
    x, weight, bias = own
    assert x is not None
    assert weight is not None
    nll, mean = function(x, weight, bias, tokens)
    weighted = zip(loss_weights.to(dtype), (nll, mean), strict=False)
    sum((loss_weight * part).sum() for loss_weight, part in weighted).backward()
    gradients = [tensor.grad for tensor in own if tensor is not None]
    return [nll.detach(), mean.detach(), *(gradient for gradient in gradients if gradient is not None)]


def assert_close(found: list[Tensor], expected: list[Tensor], *, close: float = CLOSE) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        assert mine.shape == theirs.shape
        scale = max(0.1, float(theirs.abs().max()))
        torch.testing.assert_close(mine.double() / scale, theirs / scale, atol=close, rtol=0)


SIZES = [
    (1, 1, 16),
    (70, 101, 16),
    (129, 257, 5),
    (300, 130, 24),
    (64, 70, 128),
    (40, 333, 200),
    (50, 90, 256),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "words", "dim"), SIZES)
def test_the_nll_and_its_gradients_are_torchs(rows: int, words: int, dim: int, bias: bool) -> None:
    factors, tokens = given(rows, words, dim, bias=bias)
    loss_weights = torch.rand(2, rows, device=DEVICE)
    found = outputs_and_gradients(ours, factors, tokens, loss_weights, torch.float32)
    assert_close(found, outputs_and_gradients(torchs, factors, tokens, loss_weights, torch.float64))


@pytest.mark.parametrize("used", [0, 1])
def test_one_output_alone_has_its_own_gradients(used: int) -> None:
    factors, tokens = given(70, 101, 16)
    loss_weights = torch.rand(1, 70, device=DEVICE)

    def one(function: NllFunction) -> NllFunction:
        return lambda *all: (function(*all)[used], function(*all)[1 - used].detach())

    found = outputs_and_gradients(one(ours), factors, tokens, loss_weights, torch.float32)
    assert_close(found, outputs_and_gradients(one(torchs), factors, tokens, loss_weights, torch.float64))


@pytest.mark.parametrize("peaked", [0.5, 2.0, 8.0])
def test_skipped_tiles_of_confident_predictions_change_nothing(peaked: float) -> None:
    """Where states are near their tokens' rows, nearly all tiles are negligible."""
    factors, tokens = given(200, 700, 32, peaked=peaked)
    tokens[::7] = 3  # rows that are surely wrong
    loss_weights = torch.rand(2, 200, device=DEVICE)
    found = outputs_and_gradients(ours, factors, tokens, loss_weights, torch.float32)
    assert_close(found, outputs_and_gradients(torchs, factors, tokens, loss_weights, torch.float64))
    assert (found[0] >= 0).all()


def test_a_tile_is_skipped_only_if_nothing_in_it_is_likely_or_right() -> None:
    from noise2text.acceleration.triton_cross_entropy import NEGLIGIBLE, _forward, _operands

    factors, tokens = given(200, 700, 32, peaked=8.0, right=9)  # within the first tile, however large
    x, weight, bias = factors
    assert x is not None
    assert weight is not None
    product = _operands(x, weight, bias, tokens, DTYPE)
    kept = _forward(product, needs_grad=True)[2]
    assert kept is not None
    shares = linear(x.double(), weight.double(), None if bias is None else bias.double()).softmax(-1)
    shares[torch.arange(200), tokens] = 1
    matters = torch.zeros(kept.visited.shape, dtype=torch.bool, device=DEVICE)
    row, word = (shares > math.exp(-NEGLIGIBLE)).nonzero().unbind(1)
    tiles = product.plan.training
    matters[word // tiles.words, row // tiles.rows] = True
    assert (kept.visited.bool() | ~matters).all()
    assert kept.visited.float().mean() < 1
    assert not kept.visited[1:].any()  # all later words are wrong, and far from likely


def test_the_gradient_of_a_nearly_certain_word_is_not_rounded_away() -> None:
    """p − 1 is not the difference of two rounded numbers."""
    weight = torch.eye(16, device=DEVICE)
    x, tokens = 7 * weight[:8], torch.arange(8, device=DEVICE)  # p = 0.986
    loss_weights = torch.ones(1, 8, device=DEVICE)
    found = outputs_and_gradients(ours, [x, weight, None], tokens, loss_weights, torch.float32)
    assert_close(found, outputs_and_gradients(torchs, [x, weight, None], tokens, loss_weights, torch.float64))


def test_rows_that_do_not_count_give_no_gradient() -> None:
    factors, tokens = given(70, 101, 16)
    loss_weights = torch.rand(2, 70, device=DEVICE)
    loss_weights[:, ::3] = 0
    found = outputs_and_gradients(ours, factors, tokens, loss_weights, torch.float32)
    assert found[2][::3].abs().max() == 0
    counted = torch.arange(70) % 3 > 0
    fewer = [factors[0][counted] if factors[0] is not None else None, *factors[1:]]
    expected = outputs_and_gradients(torchs, fewer, tokens[counted], loss_weights[:, counted], torch.float64)
    assert_close([found[2][counted], *found[3:]], expected[2:])


def test_nan_stays_nan() -> None:
    factors, tokens = given(70, 101, 16)
    assert factors[0] is not None
    factors[0][5, 3] = torch.nan
    found = outputs_and_gradients(ours, factors, tokens, torch.ones(2, 70, device=DEVICE), torch.float32)
    for rows in found[:2]:
        assert rows.isnan().nonzero().tolist() == [[5]]
    assert found[2][5].isnan().all()


def test_without_gradients_the_outputs_are_the_same() -> None:
    factors, tokens = given(70, 101, 16)
    x, weight, bias = factors
    assert x is not None
    assert weight is not None
    expected = ours(x.clone().requires_grad_(), weight, bias, tokens)
    with torch.no_grad():
        found = ours(x.clone().requires_grad_(), weight, bias, tokens)
    assert not any(part.requires_grad for part in found)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs.detach(), atol=1e-5, rtol=1e-5)


def test_the_same_numbers_give_the_same_bits() -> None:
    factors, tokens = given(3000 if GPU else 100, 2000 if GPU else 130, 64)
    loss_weights = torch.rand(2, len(tokens), device=DEVICE)
    first, second = (
        outputs_and_gradients(ours, factors, tokens, loss_weights, torch.float32) for _ in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.skipif(not GPU, reason="needs a GPU")
@pytest.mark.parametrize("bias", [True, False])
def test_the_fused_token_nll_uses_the_kernels_and_is_the_plain_one(
    bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With master weights in float32, under autocast, tokens (B, L) that are no multiple of a tile."""
    factors, tokens = given(9 * 1001, 1003, 128, bias=bias)
    loss_weights = torch.rand(2, 9, 1001, device=DEVICE)
    monkeypatch.setattr(functions, "nll_and_mean", None)  # what writes the logits is not called

    def from_factors(function: Callable[..., tuple[Tensor, Tensor]]) -> NllFunction:
        return lambda x, weight, bias, tokens: function(
            ProjectedLogits(x.view(9, 1001, 128), weight, bias), tokens
        )

    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        found = outputs_and_gradients(
            from_factors(functions.token_nll), factors, tokens.view(9, 1001), loss_weights, torch.float32
        )
    assert_close(
        found,
        outputs_and_gradients(
            from_factors(_unrounded), factors, tokens.view(9, 1001), loss_weights, torch.float64
        ),
    )


def _unrounded(scores: ProjectedLogits, tokens: Tensor) -> tuple[Tensor, Tensor]:
    nll, mean = torchs(scores.states.flatten(0, 1), scores.weight, scores.bias, tokens.flatten())
    return nll.view_as(tokens), mean.view_as(tokens)


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_few_or_wide_rows_are_computed_without_the_kernels() -> None:
    for rows, dim in ((16, 64), (functions.MIN_KERNEL_ROWS, 2 * functions.MAX_KERNEL_CHANNELS)):
        factors, tokens = given(rows, 130, dim)
        x, weight, bias = factors
        assert x is not None
        assert weight is not None
        scores = ProjectedLogits(x, weight, bias)
        with torch.autocast("cuda", torch.bfloat16):
            assert not functions._fits_vocabulary_kernel(scores)
            found, expected = functions.token_nll(scores, tokens), token_nll(scores, tokens)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, atol=0.2, rtol=0.05)


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_a_cuda_graph_gives_the_same_bits_for_new_inputs() -> None:
    from noise2text.acceleration.cuda_graphs import CudaGraph

    loss_weights = torch.rand(2, 3000, device=DEVICE)
    factors, tokens = given(3000, 2001, 128)
    other, other_tokens = given(3000, 2001, 128, peaked=1.0)
    expected = [
        outputs_and_gradients(ours, *pair, loss_weights, torch.float32)
        for pair in ((factors, tokens), (other, other_tokens))
    ]
    graph = CudaGraph(
        lambda: outputs_and_gradients(ours, factors, tokens, loss_weights, torch.float32),
        pool=torch.cuda.graph_pool_handle(),
    )
    for values, wanted, result in zip((factors, other), (tokens, other_tokens), expected, strict=True):
        for factor, value in zip(factors, values, strict=True):
            assert factor is not None
            assert value is not None
            factor.copy_(value)
        tokens.copy_(wanted)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(graph(), result, strict=True))
