"""Rows come back as they were put in, padded or cut out of a long array."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from noise2text.data.ragged import RaggedRows

ragged = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=8)


@given(ragged)
def test_rows_are_lists_again(rows: list[list[int]]) -> None:
    assert list(RaggedRows.from_lists(rows)) == rows
    assert len(RaggedRows.from_lists(rows)) == len(rows)


@given(ragged, st.integers(0, 10))
def test_padding_fills_up_to_the_width_or_the_longest(rows: list[list[int]], width: int) -> None:
    tokens, padding = RaggedRows.from_lists(rows).pad_to(width, pad=7)
    wide = max(width, *map(len, rows))
    assert tokens.tolist() == [row + [7] * (wide - len(row)) for row in rows]
    assert padding.tolist() == [[i >= len(row) for i in range(wide)] for row in rows]


@given(ragged, st.data())
def test_cutting_takes_any_rows_in_any_order(rows: list[list[int]], data: st.DataObject) -> None:
    whole = RaggedRows.from_lists(rows)
    starts = np.concatenate([[0], np.cumsum(whole.lengths)[:-1]])
    chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6)))
    cut = RaggedRows.from_slices(whole.tokens.astype(np.uint16), starts[chosen], whole.lengths[chosen])
    assert list(cut) == [rows[i] for i in chosen]


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6), st.integers(0, 2))
def test_surrounding_puts_the_tokens_around_every_row(rows: list[list[int]], count: int) -> None:
    prefix, suffix = [11, 12][:count], [21]
    surrounded = RaggedRows.from_lists(rows).surround(prefix, suffix)
    assert list(surrounded) == [[*prefix, *row, *suffix] for row in rows]
