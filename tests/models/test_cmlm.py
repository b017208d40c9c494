"""Mask-predict: what is not masked stays, ever fewer are masked, one iteration is the parallel argmax."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.ragged import RaggedRows
from noise2text.models.cmlm import MaskPredictStep, mask_predict, sample_mask

MASK, WORDS = 1, 9


def predict(tokens: Tensor) -> Tensor:
    """Log-probabilities that depend on every token of the row, so that iterations matter."""
    mixed = (tokens * torch.arange(1, tokens.shape[1] + 1)).sum(1, keepdim=True)
    positions = torch.arange(tokens.shape[1])
    logits = torch.sin(torch.arange(WORDS) * (mixed + 7 * positions)[..., None] + positions[:, None])
    return (3 * logits).log_softmax(-1)


def stages(lengths: list[int], iterations: int) -> tuple[Tensor, list[MaskPredictStep]]:
    width = max(lengths)
    open_positions = torch.arange(width) < torch.tensor(lengths)[:, None]
    tokens = torch.zeros(open_positions.shape, dtype=torch.long)
    return open_positions, mask_predict(predict, tokens, open_positions, mask=MASK, iterations=iterations)


LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.integers(1, 12))
def test_the_masked_count_falls_and_the_least_certain_are_masked(lengths: list[int], iterations: int) -> None:
    open_positions, seen = stages(lengths, iterations)
    assert len(seen) == iterations
    for t, stage in enumerate(seen):
        assert stage.masked.sum(1).tolist() == [n * (iterations - t) // iterations for n in lengths]
        assert not (stage.masked & ~open_positions).any()
        if t:
            scores = seen[t - 1].scores
            for row, own in enumerate(stage.masked):
                free = scores[row][open_positions[row] & ~own]
                assert not own.any() or not len(free) or scores[row][own].max() <= free.min()


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.integers(2, 12))
def test_what_is_not_masked_keeps_token_and_score(lengths: list[int], iterations: int) -> None:
    _, seen = stages(lengths, iterations)
    for before, after in pairwise(seen):
        assert torch.equal(before.tokens[~after.masked], after.tokens[~after.masked])
        assert torch.equal(before.scores[~after.masked], after.scores[~after.masked])


def test_one_iteration_is_the_parallel_argmax() -> None:
    open_positions, (only,) = stages([4, 7, 2], 1)
    log_p = predict(torch.where(open_positions, MASK, 0))
    assert torch.equal(only.tokens[open_positions], log_p.argmax(-1)[open_positions])
    assert torch.equal(only.scores[open_positions], log_p.max(-1).values[open_positions])


def canvas_of(lengths: list[int], *, width: int = 0) -> Canvas:
    rows = RaggedRows.from_lists([[5] * n for n in lengths])
    return SplitLayout(0).make_canvas(rows, rows, shape=(0, width))


def test_training_hides_every_number_of_tokens_alike_and_every_place_alike() -> None:
    n, rows = 5, 20_000
    hidden = sample_mask(canvas_of([n] * rows), make_key(0, torch.arange(rows)))
    shares = torch.bincount(hidden.sum(1), minlength=n + 1) / rows
    assert shares[0] == 0
    assert torch.allclose(shares[1:], torch.full((n,), 1 / n), atol=0.02)
    assert torch.allclose(hidden.float().mean(0), torch.full((n,), (n + 1) / 2 / n), atol=0.02)


def test_what_is_hidden_depends_on_the_key_and_not_on_padding_or_neighbors() -> None:
    keys = make_key(3, torch.arange(3))
    narrow, wide = sample_mask(canvas_of([6, 3, 1]), keys), sample_mask(canvas_of([6, 3, 1], width=11), keys)
    assert torch.equal(narrow, wide[:, :6])
    assert not wide[:, 6:].any()
    assert torch.equal(sample_mask(canvas_of([3], width=11), keys[1:2])[0], wide[1])
    assert sample_mask(canvas_of([9]), keys[:1]).tolist() != sample_mask(canvas_of([9]), keys[1:2]).tolist()
