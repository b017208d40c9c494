"""Pairs from Python: lists of tuples or dicts, the rows of pandas and of Hugging Face datasets.

    [("Hallo", "Hello"), …]    [{"src": "Hallo", "trg": "Hello"}, …]    DataFrame(columns=["de", "en"])

The names of fields are those of files (`data/fields.py`); a row of a translation dataset,
{"translation": {"de": …, "en": …}}, is read by its two languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair, ReadCounts
from noise2text.data.fields import map_object

__all__ = ["convert_rows"]

_DEFAULT_FIELDS = ("src", "trg")


def convert_rows(
    rows: Iterable[Any],
    *,
    fields: tuple[str, str] | None = None,
    skip_bad: bool = False,
    counts: ReadCounts | None = None,
) -> Iterator[Pair]:
    """The pairs of the rows; a bad row is a Problem that names it, or skipped and counted (`skip_bad`)."""
    counts = counts or ReadCounts()
    for number, row in enumerate(_iterate_rows(rows)):
        try:
            pair = _convert_row(row, fields)
        except _RowError as error:
            if not skip_bad:
                raise Problem(f"Row {number} of the pairs {error}.") from error
            counts.num_skipped += 1
            continue
        counts.num_pairs += 1
        yield pair
    if counts.num_pairs == 0:
        raise Problem("There are no pairs in the rows: a row is a tuple (source, target) or a dict of both.")


class _RowError(Exception):
    """What is wrong with a row, as the end of a sentence."""


def _iterate_rows(rows: Iterable[Any]) -> Iterable[Any]:
    """The rows; those of a DataFrame as dicts."""
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        records: list[dict[str, Any]] = rows.to_dict("records")
        return records
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        kind = type(rows).__name__
        raise Problem(f"Pairs are a file, a list of rows, a DataFrame or a dataset, not one {kind}.")
    return rows


def _convert_row(row: Any, fields: tuple[str, str] | None) -> Pair:
    if isinstance(row, Pair):
        return row
    if isinstance(row, Mapping):
        if fields is None:
            return _make_pair(_pick(map_object(row, ()), _DEFAULT_FIELDS), _DEFAULT_FIELDS)
        return _make_pair(_pick(row, fields), fields)
    if isinstance(row, tuple | list) and len(row) == 2:
        return _make_pair(row, ("source", "target"))
    raise _RowError("is neither a tuple (source, target) nor a dict with both")


def _make_pair(values: Sequence[Any], names: tuple[str, str]) -> Pair:
    source, target = map(_require_text, values, names)
    return Pair(source, target)


def _pick(row: Mapping[str, Any], fields: tuple[str, str]) -> list[Any]:
    """The values of both fields, which may be one level below the field `translation`."""
    inner = row.get("translation")
    if isinstance(inner, Mapping) and not all(name in row for name in fields):
        row = inner
    for name in fields:
        if name not in row:
            found = ", ".join(map(repr, list(row)[:6]))
            raise _RowError(
                f"has no {name!r} (it has {found}); name the two fields, such as fields=('de', 'en')"
            )
    return [row[name] for name in fields]


def _require_text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        shown = "is empty" if isinstance(value, str) else f"is {value!r}, not a text"
        raise _RowError(f"is bad: its {name} {shown}; correct it, or pass skip_bad to skip such rows")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _RowError(f"is bad: its {name} contains half of a surrogate pair") from error
    return value
