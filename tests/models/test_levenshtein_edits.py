"""The oracle's edits turn any row into any other, and no fewer edits would; batches change nothing."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.metrics.distance import edit_distance
from torch import Tensor

from noise2text.models.levenshtein_edits import (
    align,
    count_insertions,
    find_missing,
    positions_after_deletion,
    positions_after_insertion,
    scatter_tokens,
)

PAD, BEGIN, END, HOLE = 0, 1, 2, 3
WORDS = st.lists(st.integers(4, 7), max_size=9)


def page(rows: list[list[int]], *, width: int = 0) -> Tensor:
    """Rows between their marks, filled up with padding."""
    width = max(width, *(len(row) + 2 for row in rows))
    marked = [[BEGIN, *row, END] for row in rows]
    return torch.tensor([row + [PAD] * (width - len(row)) for row in marked])


def edited(draft: Tensor, reference: Tensor) -> tuple[Tensor, int]:
    """What the oracle makes of the draft, and in how many edits of a token."""
    aligned = align(draft, reference, pad=PAD)
    delete_mask = (aligned < 0) & (draft != PAD)
    positions = positions_after_deletion(draft, delete_mask, pad=PAD)
    shorter = scatter_tokens(draft, positions, torch.full_like(draft, PAD))
    counts = count_insertions(scatter_tokens(aligned, positions, torch.full_like(draft, -1)))
    positions, lengths = positions_after_insertion(shorter, counts, pad=PAD)
    board = torch.full_like(reference, PAD)
    board[torch.arange(reference.shape[1]) < lengths[:, None]] = HOLE
    opened = scatter_tokens(shorter, positions, board)
    gone = find_missing(aligned, reference, pad=PAD)
    assert torch.equal(opened == HOLE, gone)
    return torch.where(opened == HOLE, reference, opened), int(delete_mask.sum() + counts.sum())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4))
def test_oracle_edits_turn_any_row_into_any_other_with_the_fewest_edits(
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    draft, reference = page([a for a, _ in pairs]), page([b for _, b in pairs])
    result, edits = edited(draft, reference)
    assert torch.equal(result, reference)
    assert edits == sum(edit_distance(a, b, substitution_cost=2) for a, b in pairs)


@settings(max_examples=50, deadline=None)
@given(WORDS, WORDS, st.integers(12, 20))
def test_neither_padding_nor_neighbors_change_the_alignment(a: list[int], b: list[int], width: int) -> None:
    alone = align(page([a]), page([b]), pad=PAD)
    among = align(page([a, b], width=width), page([b, a], width=width), pad=PAD)
    assert torch.equal(among[:1, : alone.shape[1]], alone)
    assert (among[0, alone.shape[1] :] == -1).all()


def test_of_equal_tokens_the_first_is_kept() -> None:
    assert align(page([[5]]), page([[5, 5, 5]]), pad=PAD).tolist() == [[0, 1, 4]]
    assert align(page([[5, 6]]), page([[6, 5, 5]]), pad=PAD).tolist() == [[0, 2, -1, 4]]


def test_equal_rows_need_no_edit() -> None:
    rows = page([[4, 5, 6], [7]])
    aligned = align(rows, rows, pad=PAD)
    assert not find_missing(aligned, rows, pad=PAD).any()
    assert not count_insertions(aligned).any()
