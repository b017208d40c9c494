"""Fused training has the gradients of eager training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

from noise2text.acceleration import fused_functions as fused
from noise2text.acceleration.cuda_graph_training import CudaGraphTrainingPass
from noise2text.acceleration.fused import (
    FusedAddNorm,
    FusedCrossAttention,
    FusedFeedForward,
    FusedSelfAttention,
    fuse,
)
from noise2text.acceleration.packing import PackedLayerStack, pack_short_rows
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.nn.layers import (
    AddNorm,
    CrossAttention,
    FeedForward,
    LayerStack,
    SelfAttention,
    UnpaddedLayerStack,
)
from noise2text.training.loop import evaluate_loss
from noise2text.training.objective import Objective

from ..training.small_training import GRAPHABLE_RECIPES, build_small, make_batches, train_small


def _gradients(
    name: str,
    tokenizer: Tokenizer,
    prepare: Callable[[Model, Any], None],
    autocast: AbstractContextManager[Any] = nullcontext(),
    *,
    uneven: float = 0.3,
) -> dict[str, torch.Tensor]:
    """The gradients of one pass; large, uneven weights show whether a row saw the tokens of another."""
    rows = [[7 + (row * 5 + place) % 11 for place in range(1 + row)] for row in range(4)]
    model, objective = build_small(name, tokenizer, "cpu")
    objective.train()
    prepare(model, objective)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(uneven * torch.randn_like(parameter))
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists(rows), RaggedRows.from_lists(rows[::-1]), shape=(5, 4)
    )
    draws = objective.draw(canvas, torch.arange(4), torch.tensor(3))
    with autocast:
        losses = objective(canvas, draws)
    objective.loss(objective.means(losses, objective.counts(canvas))).backward()
    return {key: value.grad for key, value in model.named_parameters() if value.grad is not None}


def _assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.allclose(found[key], value, atol=1e-3 * float(value.abs().max()) + 1e-7), key


@pytest.mark.parametrize("name", GRAPHABLE_RECIPES)
def test_rows_side_by_side_train_as_rows_apart(name: str, tokenizer: Tokenizer) -> None:
    packed = _gradients(name, tokenizer, lambda model, objective: pack_short_rows(model, tokens=64))
    _assert_same(packed, _gradients(name, tokenizer, lambda model, objective: None))


FULL_CANVASES = [name for name in GRAPHABLE_RECIPES if name.startswith("diffus")]
"""DiffuSeq and what follows it fill a canvas up with tokens; the others' canvases have padding."""


@pytest.mark.parametrize("name", GRAPHABLE_RECIPES)
def test_layers_go_without_a_mask_where_canvases_are_full(name: str, tokenizer: Tokenizer) -> None:
    model, _ = build_small(name, tokenizer, "cpu")
    unmasked = any(isinstance(part, UnpaddedLayerStack) for part in model.modules())
    assert unmasked == (name in FULL_CANVASES)


@pytest.mark.parametrize("name", FULL_CANVASES)
def test_layers_without_a_mask_are_only_given_canvases_without_padding(
    name: str, tokenizer: Tokenizer
) -> None:
    model, _ = build_small(name, tokenizer, "cpu")
    layout, rows = model.layout, RaggedRows.from_lists([[7, 8, 9], [10]])
    prompt = layout.make_empty_canvas(layout.make_source(rows), torch.tensor([[1, 2], [3, 2]]), width=4)
    canvas = layout.make_canvas(rows, rows, shape=(6, 5))
    varied = layout.randomize(canvas, torch.tensor([0.1, 0.9]))
    ended = layout.end_text_at(prompt, torch.tensor([6, 7, 8, 9]))
    for given in (
        canvas,
        varied,
        prompt,
        ended,
        layout.without_source(canvas),
        layout.without_source(prompt),
    ):
        assert not given.padding.any()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", GRAPHABLE_RECIPES)
def test_fused_passes_have_the_gradients_of_plain_ones(name: str, tokenizer: Tokenizer) -> None:
    """Without the compiler, and in float32: all that is fused, in its place."""
    found = _gradients(name, tokenizer, lambda model, objective: fuse(objective))
    _assert_same(found, _gradients(name, tokenizer, lambda model, objective: None))


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", ["difformer", "diffuseq", "transformer"])
def test_fused_passes_round_no_worse_than_plain_ones(name: str, tokenizer: Tokenizer) -> None:
    """In bfloat16: both gradients are about as far from that in float32."""

    rough = torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
    exact = _gradients(name, tokenizer, lambda model, objective: None, uneven=0.0)
    plain = _gradients(name, tokenizer, lambda model, objective: None, rough, uneven=0.0)
    mine = _gradients(name, tokenizer, lambda model, objective: fuse(objective), rough, uneven=0.0)
    assert mine.keys() == plain.keys()
    flat = [torch.cat([each[key].double().flatten() for key in exact]) for each in (exact, plain, mine)]
    error, own = (1 - torch.cosine_similarity(flat[0], each, dim=0) for each in flat[1:])
    assert own < 2 * error + 1e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["difformer", "diffuseq", "transformer"])
def test_fused_training_loses_what_plain_training_does(name: str, tokenizer: Tokenizer) -> None:
    autocast = torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
    losses, _ = train_small(
        name,
        tokenizer,
        "cuda",
        prepare=fuse,
        graph=lambda parameters: CudaGraphTrainingPass(parameters, autocast),
        autocast=autocast,
    )
    expected, _ = train_small(name, tokenizer, "cuda", autocast=autocast)
    assert losses == pytest.approx(expected, rel=0.02)


@pytest.mark.usefixtures("uncompiled")
def test_what_is_compiled_is_what_it_stands_for() -> None:
    """The functions themselves, without the compiler: add and norm, and the token nll."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 3, 8, requires_grad=True)
    plain = AddNorm(8, 0.0)
    ours = fused.add_norm(x, y, plain.weight, plain.bias, eps=plain.eps, dropout_rate=0.0)
    assert torch.allclose(ours, plain(x, y), atol=1e-6)
    logits, tokens = torch.randn(2, 3, 11), torch.randint(11, (2, 3))
    at, mean = fused.nll_and_mean(logits, tokens)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
    assert torch.allclose(at.flatten(), expected, atol=1e-6)
    assert torch.allclose(mean, -logits.log_softmax(-1).mean(-1), atol=1e-6)


def test_fusing_reaches_every_residual_and_objective(tokenizer: Tokenizer) -> None:
    model, objective = build_small("diffuseq-guided", tokenizer, "cpu")
    fuse(objective)
    for plain, fast in (
        (AddNorm, FusedAddNorm),
        (SelfAttention, FusedSelfAttention),
        (CrossAttention, FusedCrossAttention),
        (FeedForward, FusedFeedForward),
        (LayerStack, PackedLayerStack),
    ):
        assert all(isinstance(part, fast) for part in model.modules() if isinstance(part, plain))
    inner = [part for part in objective.modules() if isinstance(part, Objective)]
    assert len(inner) == 2
    assert all(part.training_token_nll is fused.token_nll for part in inner)
    assert all(part.training_normal is fused.normal for part in inner)


def test_fused_functions_are_for_training_alone(tokenizer: Tokenizer) -> None:
    model, objective = build_small("diffuseq", tokenizer, "cpu")
    canvases = make_batches(model, "cpu")(1)
    expected = evaluate_loss(objective, canvases, seed=0)
    objective.training_token_nll = objective.training_normal = None  # calling either would fail
    assert evaluate_loss(objective, canvases, seed=0) == expected
