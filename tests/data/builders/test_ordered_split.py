"""A split by order takes pairs, not lines."""

from __future__ import annotations

from noise2text.data.builders.dataset import DatasetRow, make_row, skip_row
from noise2text.data.builders.ordered_split import split_by_order

from .conftest import splits


def test_test_comes_first_then_valid_then_train() -> None:
    rows = [make_row("", str(number), "x") for number in range(6)]
    found = splits(split_by_order(rows, test=2, valid=1))
    assert {split: [src for src, _ in pairs] for split, pairs in found.items()} == {
        "test": ["0", "1"],
        "valid": ["2"],
        "train": ["3", "4", "5"],
    }


def test_lines_that_were_left_out_are_not_counted() -> None:
    rows = [
        skip_row("no"),
        make_row("", "a", "x"),
        skip_row("no"),
        make_row("", "b", "x"),
        make_row("", "c", "x"),
    ]
    assert [row.split for row in split_by_order(rows, test=1, valid=1)] == ["", "test", "", "valid", "train"]


def test_a_pair_with_an_empty_side_is_left_out_of_its_split() -> None:
    assert make_row("valid", " ", "x") == DatasetRow("valid", None, "a side is empty")
    assert make_row("valid", "x", "").pair is None
