"""Rows from Python: the same pairs, whatever they are rows of; a bad row is named."""

from __future__ import annotations

from typing import Any

import pandas
import pytest

from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair, ReadCounts
from noise2text.data.python_pairs import convert_rows

PAIRS = [Pair("Hallo", "Hello"), Pair("Tschüs", "Bye")]


class Dataset:
    """Like a Hugging Face dataset: it gives dicts, one after another."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.column_names = rows, list(rows[0])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def __iter__(self) -> Any:
        return iter(self.rows)


DICTS = [{"src": pair.src, "trg": pair.trg, "id": 3} for pair in PAIRS]


@pytest.mark.parametrize(
    "rows",
    [
        PAIRS,
        [(pair.src, pair.trg) for pair in PAIRS],
        (["Hallo", "Hello"], ["Tschüs", "Bye"]),
        DICTS,
        iter(DICTS),
        pandas.DataFrame(DICTS),
        Dataset(DICTS),
        [{"source": pair.src, "target": pair.trg} for pair in PAIRS],
        pandas.DataFrame([{"id": 3, "de": pair.src, "en": pair.trg} for pair in PAIRS]),
        Dataset([{"translation": {"de": pair.src, "en": pair.trg}} for pair in PAIRS]),
    ],
    ids=[
        *("pairs", "tuples", "lists", "dicts", "iterator", "pandas", "dataset"),
        *("other-names", "languages", "translation"),
    ],
)
def test_rows_of_every_kind_are_the_same_pairs(rows: Any) -> None:
    assert list(convert_rows(rows)) == PAIRS


@pytest.mark.parametrize(
    "rows",
    [
        [{"de": pair.src, "en": pair.trg} for pair in PAIRS],
        [{"translation": {"de": pair.src, "en": pair.trg}} for pair in PAIRS],
        pandas.DataFrame([{"en": pair.trg, "de": pair.src} for pair in PAIRS]),
    ],
    ids=["dicts", "translation", "pandas"],
)
def test_fields_name_the_columns(rows: Any) -> None:
    assert list(convert_rows(rows, fields=("de", "en"))) == PAIRS


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "b"), ("a", " ")], r"Row 1 of the pairs is bad: its target is empty"),
        ([("a", "b"), (None, "b")], r"Row 1 .* its source is None, not a text"),
        ([("a", "b", "c")], r"Row 0 .* neither a tuple \(source, target\) nor a dict"),
        (["ab"], r"Row 0 .* neither a tuple"),
        ([{"question": "a", "answer": "b"}], r"Row 0 .* has no 'src' .it has 'question', 'answer'.; name"),
        ([{"de": "a", "en": "b", "fr": "c"}], r"Row 0 .* has no 'src' .it has 'de', 'en', 'fr'.; name"),
        (pandas.DataFrame([["a", "b"]]), r"Row 0 .* has no 'src'"),
        (pandas.DataFrame({"src": ["a"], "trg": [float("nan")]}), r"Row 0 .* trg is nan, not a text"),
        ([("a", "\ud800")], "surrogate"),
        ([], "There are no pairs"),
        ({"src": ["a"], "trg": ["b"]}, "not one dict"),
        (7, "not one int"),
    ],
)
def test_a_bad_row_is_named(rows: Any, message: str) -> None:
    with pytest.raises(Problem, match=message):
        list(convert_rows(rows))


def test_bad_rows_can_be_skipped_and_are_counted() -> None:
    counts = ReadCounts()
    assert list(convert_rows([("a", ""), ("a", "b"), 3], skip_bad=True, counts=counts)) == [Pair("a", "b")]
    assert (counts.num_pairs, counts.num_skipped) == (1, 2)
