"""Datasets that are split already: read, and subwords joined."""

from __future__ import annotations

import pytest

from noise2text.data.builders.dataset import Dataset
from noise2text.data.builders.presplit import (
    GIGAWORD,
    GIGAWORD_NAMES,
    MULTI30K,
    MULTI30K_NAMES,
    WMT14_NAMES,
    WMT14_PREPARED,
    WMT16_NAMES,
    WMT16_PREPARED,
    Names,
)

from .conftest import Write, splits

CASES = [
    (GIGAWORD, GIGAWORD_NAMES),
    (MULTI30K, MULTI30K_NAMES),
    (WMT14_PREPARED, WMT14_NAMES),
    (WMT16_PREPARED, WMT16_NAMES),
]


@pytest.mark.parametrize("dataset, names", CASES, ids=lambda value: getattr(value, "name", ""))
def test_each_split_is_read_from_its_two_files(write: Write, dataset: Dataset, names: Names) -> None:
    files: dict[str, str] = {}
    for split, (source, target) in names.items():
        files |= {
            f"{source}.gz": f"{split} Eins\n\n{split} drei\n",
            target: f"{split} One\ntwo\n{split} three\n",
        }
    expected = {
        split: [(f"{split} Eins", f"{split} One"), (f"{split} drei", f"{split} three")] for split in names
    }
    assert splits(dataset.read_rows(write(files))) == expected
    assert {file.name for file in dataset.files} == {name for both in names.values() for name in both}


@pytest.mark.parametrize(
    "cut, whole",
    [("low@@ er case", "lower case"), ("a un@@ believ@@ able", "a unbelievable"), ("cut off@@", "cut off")],
)
def test_subwords_are_put_together(write: Write, cut: str, whole: str) -> None:
    files = {name: f"{cut}\n" for both in WMT16_NAMES.values() for name in both}
    assert splits(WMT16_PREPARED.read_rows(write(files)))["train"] == [(whole, whole)]
