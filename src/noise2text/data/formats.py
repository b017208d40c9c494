"""The formats that people have files in: JSON Lines, JSON arrays, TSV, CSV, Parquet, plain text.

`read_records` yields one record per row, or the error of a bad one, so that its reader can skip it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from noise2text.core.errors import Problem
from noise2text.data.corpus_paths import display_name
from noise2text.data.fields import is_header, map_columns, map_object
from noise2text.data.records import (
    LineError,
    Record,
    decode,
    is_record,
    parse_json,
    parse_text,
    parse_tsv,
)
from noise2text.data.text_files import FileLine, read_lines

__all__ = ["Records", "map_json", "map_row", "read_records"]

Records = Iterator[Record | LineError]
Parse = Callable[[FileLine], Record]

PARQUET_ROWS = 256  # that are in memory at once: a small file may repeat a long text very often
MAX_COLUMN_DIGITS = 10  # a field of more is a name, not the number of a column


def read_records(path: str, fields: Sequence[str] = (), *, pairs: bool) -> Records:
    """The records of a file; its name decides the format, and otherwise its first line.

    Where that says nothing, a file of `pairs` is TSV, and another one has a text in each line.
    """
    suffix = Path(path.lower().removesuffix(".gz")).suffix
    if suffix in (".xlsx", ".xls", ".ods"):
        raise Problem(f"{path} is a spreadsheet: save it as CSV, and name its columns with --fields.")
    if suffix == ".parquet":
        return _read_parquet(path, fields)
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        return iter(())
    lines = chain([first], lines)
    if suffix == ".csv":
        return _read_csv(path, lines, fields)
    if suffix not in (".jsonl", ".ndjson", ".tsv") and _starts_array(first, suffix == ".json" or pairs):
        return _read_array(path, lines, fields)
    if (
        suffix in (".jsonl", ".ndjson", ".json")
        or is_record(first, fields)
        or (pairs and first.data.startswith(b"{"))
    ):
        return _parse_lines(lines, lambda line: map_json(parse_json(line), fields))
    if suffix == ".tsv" or pairs:
        return _read_tsv(path, first, lines, fields)
    if fields:
        raise Problem(f"{display_name(path)} has no fields to name: it has one text per line.")
    return _parse_lines(lines, parse_text)


def _parse_lines(lines: Iterator[FileLine], parse: Parse) -> Records:
    for line in lines:
        try:
            record = parse(line)
        except LineError as bad:
            yield bad
        else:
            yield record


def _map_or_error(
    map_record: Callable[[Record, Sequence[str]], Record], record: Record, fields: Sequence[str]
) -> Record | LineError:
    try:
        return map_record(record, fields)
    except LineError as bad:
        return bad


# JSON


def _starts_array(line: FileLine, likely: bool) -> bool:
    """Whether a file whose first line this is holds one JSON array; a text may begin with a bracket."""
    start = b"".join(line.data.split()[:2])
    return start.startswith(b"[") if likely else start in (b"[", b"[{") or start.startswith((b'[{"', b'["'))


def map_json(record: Record, fields: Sequence[str]) -> Record:
    """A JSON object with src and trg, or text, from the named fields."""
    missing = [name for name in fields if name not in {**record.fields, **record.inner_fields}]
    if missing:
        raise LineError(record.line, f'there is no field "{missing[0]}"{record.describe_fields()}')
    return Record(record.line, map_object(record.fields, fields))


def _read_array(path: str, lines: Iterator[FileLine], fields: Sequence[str]) -> Records:
    """The elements of a JSON array: objects, texts, or lists of two texts."""
    name = display_name(path)
    try:
        rows = json.loads("\n".join(map(decode, lines)))
    except LineError as bad:
        raise Problem(f"{bad}; correct the file.") from bad
    except (ValueError, RecursionError) as error:
        raise Problem(
            f"{name} begins like a JSON array but is not valid JSON ({error}): correct the file."
        ) from error
    for number, row in enumerate(rows, 1):
        line = FileLine(path, number, b"", "element")
        if isinstance(row, list) and len(row) == 2:
            row = dict(zip(("src", "trg"), row, strict=True))
        if isinstance(row, str):
            yield Record(line, {"text": row})
        elif not isinstance(row, dict):
            yield LineError(line, "this is not an object, a text or a list of two texts")
        else:
            yield _map_or_error(map_json, Record(line, row), fields)


# Tables


def _read_tsv(path: str, first: FileLine, lines: Iterator[FileLine], fields: Sequence[str]) -> Records:
    """Source TAB target; if the first line is a header, it names the columns."""
    try:
        names = decode(first).split("\t")
    except LineError:
        names = []
    if not fields and not is_header(names):
        return _parse_lines(lines, parse_tsv)
    next(lines)
    return _read_table(path, ((line, decode(line).split("\t")) for line in lines), names, fields)


def _read_csv(path: str, lines: Iterator[FileLine], fields: Sequence[str]) -> Records:
    """The rows of CSV, whose first row names the columns; columns may also be given by number."""
    rows = _split_csv(path, lines)
    first = next(rows, (None, []))[1]
    numbers = [int(field) for field in fields if field.isdecimal() and len(field) < MAX_COLUMN_DIGITS]
    if numbers and len(numbers) == len(fields):
        if not all(1 <= number <= len(first) for number in numbers):
            raise Problem(f"{path} has the columns 1 to {len(first)}, not {','.join(fields)}.")
        names = [str(number) for number in range(1, len(first) + 1)]
        return _read_table(path, chain([(FileLine(path, 1, b""), first)], rows), names, fields)
    if not fields and not is_header(first):
        raise Problem(
            f"{display_name(path)} begins with {', '.join(map(repr, first[:4]))}: if these are the names of "
            "columns, choose from them with --fields; if they are texts, give the numbers of their columns, "
            "--fields 1,2."
        )
    return _read_table(path, rows, first, fields)


def _split_csv(path: str, lines: Iterator[FileLine]) -> Iterator[tuple[FileLine, list[str]]]:
    """The rows of CSV and where they end; a quoted cell may have line breaks."""
    first = next(lines)
    try:
        head = decode(first)
        delimiter = max(",;\t", key=head.count)  # Excel writes semicolons in some countries
        rows = csv.reader((f"{decode(line)}\n" for line in chain([first], lines)), delimiter=delimiter)
        for row in rows:
            yield FileLine(path, rows.line_num, b""), row
    except (csv.Error, LineError) as error:
        raise Problem(f"{display_name(path)} cannot be read as CSV: {error}.") from error


def _read_table(
    path: str, rows: Iterator[tuple[FileLine, list[str]]], names: Sequence[str], fields: Sequence[str]
) -> Records:
    """One record per row, by the columns' names."""
    columns = map_columns(names, fields, display_name(path))
    while True:
        try:
            line, cells = next(rows)
        except StopIteration:
            return
        except LineError as bad:
            raise Problem(f"{bad}; correct the file.") from bad
        if not cells and len(names) > 1:
            yield LineError(line, "the line is empty")
        elif len(cells) != len(names) and cells:
            yield LineError(line, f"expected {len(names)} columns, found {len(cells)}")
        else:
            yield Record(line, {key: cells[at] if cells else "" for key, at in columns.items()})


def _read_parquet(path: str, fields: Sequence[str]) -> Records:
    """The rows of a Parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise Problem(f"{path} needs pyarrow: pip install pyarrow, or save it as JSON Lines.") from error
    try:
        table: Any = parquet.ParquetFile(path)
        number = 0
        for batch in table.iter_batches(PARQUET_ROWS):
            for row in batch.to_pylist():
                number += 1
                line = FileLine(path, number, b"", "row")
                yield _map_or_error(map_row, Record(line, row), fields)
    except (ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise Problem(f"{path} cannot be read as Parquet: {str(error)[:200]}.") from error


def map_row(record: Record, fields: Sequence[str]) -> Record:
    """A row as from JSON, or by the names of its columns."""
    if fields or record.inner_fields or {"src", "text", "hyp", "trg"} & set(record.fields):
        return map_json(record, fields)
    columns = map_columns(list(record.fields), (), record.line.path)
    values = list(record.fields.values())
    return Record(record.line, {key: values[at] for key, at in columns.items()})
