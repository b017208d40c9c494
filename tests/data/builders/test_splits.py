"""A split by order takes pairs, not lines."""

from __future__ import annotations

from noise2text.data.builders.dataset import Row, kept, left_out
from noise2text.data.builders.splits import in_order

from .conftest import splits


def test_test_comes_first_then_valid_then_train() -> None:
    rows = [kept("", str(number), "x") for number in range(6)]
    found = splits(in_order(rows, test=2, valid=1))
    assert {split: [src for src, _ in pairs] for split, pairs in found.items()} == {
        "test": ["0", "1"],
        "valid": ["2"],
        "train": ["3", "4", "5"],
    }


def test_lines_that_were_left_out_are_not_counted() -> None:
    rows = [left_out("no"), kept("", "a", "x"), left_out("no"), kept("", "b", "x"), kept("", "c", "x")]
    assert [row.split for row in in_order(rows, test=1, valid=1)] == ["", "test", "", "valid", "train"]


def test_a_pair_with_an_empty_side_is_left_out_of_its_split() -> None:
    assert kept("valid", " ", "x") == Row("valid", None, "a side is empty")
    assert kept("valid", "x", "").pair is None
