"""Ranges of rows: a corpus of any size, cut into pieces that processes on several machines read alone.

A range says where its rows begin, so that reading it costs nothing for the rows before: the byte for JSON
Lines, the row for Parquet, whose row groups can be found. Rows are counted from 0 over all files.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from noise2text.core.errors import Problem
from noise2text.data.corpus_paths import check_file, split_fields
from noise2text.data.formats import map_json, map_row
from noise2text.data.records import LineError, Record, parse_json
from noise2text.data.text_files import FileLine

__all__ = ["RowRange", "cut_into_ranges", "list_row_files", "read_sources_of_range"]

BLOCK = 1 << 24  # bytes that are searched for line breaks at a time
SUFFIXES = (".jsonl", ".ndjson", ".parquet")


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of one file.

    Fields:
        path: the file.
        fields: the names of its source and target, if they are not the usual ones.
        start: the number of the first row in the corpus.
        stop: the number of the last row in the corpus, plus 1.
        offset: the number of the first row in its file.
        byte: where the first row begins in JSON Lines.
    """

    path: str
    fields: tuple[str, ...]
    start: int
    stop: int
    offset: int
    byte: int = 0


def cut_into_ranges(path: str, rows: int) -> list[RowRange]:
    """Ranges of at most `rows` rows over a file, or over all files of a folder in the order of their names.

    JSON Lines are searched for line breaks, about a gigabyte per second; of Parquet only the footers are
    read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "texts.jsonl")
    ...     _ = file.write_text('{"src": "one"}\\n{"src": "two"}\\n{"src": "three"}\\n')
    ...     ranges = cut_into_ranges(str(file), 2)
    ...     [[each.start, *read_sources_of_range(each)] for each in ranges]
    [[0, 'one', 'two'], [2, 'three']]
    """
    if rows < 1:
        raise Problem(f"--shard-rows must be at least 1 row, not {rows}.")
    _, fields = split_fields(path)
    ranges: list[RowRange] = []
    start = 0
    for file in list_row_files(path):
        bytes_, count = _find_parquet_rows(file, rows) if _is_parquet(file) else _find_lines(file, rows)
        for number, byte in enumerate(bytes_):
            offset = number * rows
            stop = start + min(offset + rows, count)
            ranges.append(RowRange(str(file), fields, start + offset, stop, offset, byte))
        start += count
    return ranges


def list_row_files(path: str) -> list[Path]:
    """The file, or the Parquet or JSON Lines files of the folder, whose rows can be found."""
    name, _ = split_fields(path)
    if os.path.isdir(name):
        files = sorted(file for file in Path(name).iterdir() if file.suffix in SUFFIXES)
        if len({_is_parquet(file) for file in files}) != 1:
            raise Problem(f"{name} must have files of one kind: .jsonl or .parquet.")
        return [file.absolute() for file in files]
    check_file(name)
    if not name.endswith(SUFFIXES):
        raise Problem(
            f"{name} cannot be read from several places: give JSON Lines (.jsonl, not compressed), Parquet, "
            "or a folder of such files."
        )
    return [Path(name).absolute()]


def read_sources_of_range(rows: RowRange) -> Iterator[str]:
    """The source text of each row; a bad row is a Problem that names it."""
    read = _read_parquet if _is_parquet(Path(rows.path)) else _read_json_lines
    try:
        for record in read(rows):
            yield record.get_first_text("src", "text")
    except LineError as bad:
        raise Problem(f"{bad}; correct it.") from bad
    except OSError as error:
        raise Problem(
            f"{rows.path} cannot be read ({error}): every machine needs it at this path."
        ) from error


def _is_parquet(file: Path) -> bool:
    return file.suffix == ".parquet"


# JSON Lines


def _find_lines(file: Path, rows: int) -> tuple[list[int], int]:
    """The bytes at which every `rows`-th line begins, and the number of lines."""
    starts, lines, position = [0], 0, 0
    with file.open("rb") as opened:
        if opened.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise Problem(f"{file} is UTF-16, whose lines cannot be found: save it as UTF-8.")
        opened.seek(0)
        last = b"\n"
        while block := opened.read(BLOCK):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            first = rows - 1 - lines % rows  # the line break before the next start
            starts += [position + int(end) + 1 for end in ends[first::rows]]
            lines, position, last = lines + len(ends), position + len(block), block[-1:]
    lines += last != b"\n"  # the last line may have no end
    return starts[: -(-lines // rows)], lines


def _read_json_lines(rows: RowRange) -> Iterator[Record]:
    with open(rows.path, "rb") as opened:
        opened.seek(rows.byte)
        for number, data in enumerate(islice(opened, rows.stop - rows.start), rows.offset + 1):
            bare = data.removesuffix(b"\n").removesuffix(b"\r")
            bare = bare.removeprefix(codecs.BOM_UTF8) if number == 1 else bare
            yield map_json(parse_json(FileLine(rows.path, number, bare)), rows.fields)


# Parquet


def _open_parquet(file: Path) -> Any:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise Problem(f"{file} needs pyarrow: pip install pyarrow, or save it as JSON Lines.") from error
    try:
        return parquet.ParquetFile(file)
    except ArrowException as error:
        raise Problem(f"{file} cannot be read as Parquet: {error}.") from error


def _find_parquet_rows(file: Path, rows: int) -> tuple[list[int], int]:
    count = _open_parquet(file).metadata.num_rows
    return [0] * -(-count // rows), count


def _read_parquet(rows: RowRange) -> Iterator[Record]:
    table = _open_parquet(Path(rows.path))
    end = rows.offset + rows.stop - rows.start
    groups, before = _find_row_groups(table, rows.offset, end)
    number = before
    for batch in table.iter_batches(row_groups=groups):
        first, last = max(0, rows.offset - number), min(batch.num_rows, end - number)
        for row in batch.slice(first, max(0, last - first)).to_pylist():
            first += 1
            line = FileLine(rows.path, number + first, b"", "row")
            yield map_row(Record(line, row), rows.fields)
        number += batch.num_rows


def _find_row_groups(table: Any, start: int, stop: int) -> tuple[Sequence[int], int]:
    """The row groups that have rows from start to stop, and the number of rows before them."""
    sizes = [table.metadata.row_group(group).num_rows for group in range(table.metadata.num_row_groups)]
    ends = np.cumsum(sizes)
    first, last = int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(ends, stop, "left"))
    return range(first, last + 1), int(ends[first] - sizes[first])
