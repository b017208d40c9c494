"""Corpora of text pairs, read row by row, so that they may be larger than memory.

A corpus is one of

- JSON Lines    {"src": "…", "trg": "…"}, and perhaps "refs": ["…", …]      corpus.jsonl
                or {"translation": {"de": "…", "en": "…"}}
- JSON array    of such objects, or of lists of two texts                   corpus.json
- TSV           source TAB target; a header is recognized                   corpus.tsv
- CSV           with a header                                               corpus.csv
- Parquet       if pyarrow is installed                                     corpus.parquet
- two files     with parallel lines, joined by a comma                      corpus.de,corpus.en
- "-"           standard input: JSON if its first line starts with { or [, else TSV

and any file may be compressed (.gz), except Parquet. The format of a file with another name is detected as
for standard input. Fields with other names are chosen by --fields, or as part of the path: corpus.csv[de,en].
Text is UTF-8, or what a byte-order mark says. Only \\n and \\r\\n end a line: U+2028, \\x0b and \\x85 are
part of a text. Texts are not stripped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from noise2text.core.errors import Problem
from noise2text.data.corpus_paths import check_file, display_name, split_corpus_path, split_fields
from noise2text.data.formats import Records, read_records
from noise2text.data.records import EncodingError, LabeledText, LineError, Record, join_references, parse_text
from noise2text.data.text_files import read_lines

__all__ = [
    "LabeledText",
    "Pair",
    "ReadCounts",
    "format_json_line",
    "read_alternatives",
    "read_candidates",
    "read_labeled",
    "read_pairs",
    "read_references",
    "read_sources",
    "read_texts",
    "write_pairs",
]

T = TypeVar("T")

MAX_SKIPPED_SHARE = 0.1
"""The share of bad rows above which --skip-bad refuses a corpus; a few rows may always be bad."""
FEW_ROWS = 10
CONVERT = "convert the file to UTF-8 (iconv -f WINDOWS-1252 -t UTF-8)"


@dataclass(frozen=True)
class Pair:
    """A source, its target, and more references for evaluation."""

    src: str
    trg: str
    refs: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """The target and the other references, without repeating the target."""
        return join_references(self.trg, self.refs)


@dataclass
class ReadCounts:
    """How many pairs of a corpus have been read, and how many bad rows skipped, so far."""

    num_pairs: int = 0
    num_skipped: int = 0


def read_pairs(path: str, *, skip_bad: bool = False, counts: ReadCounts | None = None) -> Iterator[Pair]:
    """The pairs of a corpus, in order; a bad row is a Problem, or skipped and counted (`skip_bad`).

    A corpus with many bad rows is a Problem in either case.
    """
    files = split_corpus_path(path)
    for file in files:
        check_file(file)
    return _parse_pairs(files, path, skip_bad=skip_bad, counts=counts or ReadCounts())


def read_sources(path: str) -> Iterator[str]:
    """The source texts: one per line, "src" (or "text") of JSON, or the source of TSV, CSV or Parquet.

    For two parallel files, SOURCE,TARGET, these are the lines of the first.
    """
    return _read_texts(path, lambda record: record.get_first_text("src", "text"))


def read_texts(path: str) -> list[str]:
    """The texts to evaluate: one per line, or JSON strings or objects with "hyp", "text" or "trg"."""
    return _require_nonempty(
        list(_read_texts(path, lambda record: record.get_first_text("hyp", "text", "trg"))), path
    )


def read_alternatives(path: str) -> list[list[str]] | None:
    """The "alternatives" of each line of JSON Lines, or its text alone; None if no line has them."""
    found = list(_read_texts(path, Record.get_alternatives))
    if all(alternatives is None for alternatives in found):
        return None
    pairs = zip(found, read_texts(path), strict=True)
    return [[text] if alternatives is None else alternatives for alternatives, text in pairs]


def read_candidates(path: str) -> list[list[str]] | None:
    """The "candidates" of each line of JSON Lines; None if no line has them."""
    found = list(_read_texts(path, Record.get_candidates))
    if None in found and any(candidates is not None for candidates in found):
        where = f"{display_name(path)}, line {found.index(None) + 1}"
        raise Problem(f"{where}: this line has no candidates, but other lines do.")
    return [candidates for candidates in found if candidates is not None] or None


def read_references(path: str) -> list[tuple[str, ...]]:
    """The references of each line: the line itself, or for JSON Lines "trg" and "refs", or "text"."""
    return _require_nonempty(list(_read_texts(path, Record.get_references)), path)


def read_labeled(path: str) -> list[LabeledText]:
    """The texts of JSON Lines, "trg" or "text", with their "label", a string or an integer."""
    labeled = list(_read_texts(path, Record.get_labeled_text))
    if not labeled:
        raise Problem(
            f"{display_name(path)} has no lines; a line is a JSON object with trg (or text) and label."
        )
    return labeled


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write the pairs as JSON Lines."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(format_json_line, pairs))


def format_json_line(pair: Pair) -> str:
    """The pair as a line of JSON Lines, including the line break."""
    refs = {"refs": list(pair.refs)} if pair.refs else {}
    return json.dumps({"src": pair.src, "trg": pair.trg, **refs}, ensure_ascii=False) + "\n"


def _parse_pairs(files: list[str], path: str, *, skip_bad: bool, counts: ReadCounts) -> Iterator[Pair]:
    """The pairs of a file, or of two files with parallel lines; a Problem if there are none."""
    skipped = _Skipped(path)
    before = counts.num_pairs
    for row in _read_rows(files, path):
        try:
            pair = _make_pair(row)
        except LineError as bad:
            if not skip_bad:
                raise Problem(f"{bad}; {_advise(bad)} or pass --skip-bad to skip bad lines.") from bad
            counts.num_skipped += 1
            skipped.add(bad)
        else:
            counts.num_pairs += 1
            yield pair
    if counts.num_pairs == before and not skipped.wrongly_encoded:
        raise Problem(
            f"{display_name(path)} has no pairs; "
            "a line is a JSON object with src and trg, or source TAB target."
        )
    skipped.check(counts.num_pairs - before)


def _read_rows(files: list[str], path: str) -> Iterator[Sequence[Record | LineError]]:
    """The record of each row of one file, or the two of two parallel files."""
    if len(files) == 1:
        fields = split_fields(path)[1]
        if len(fields) == 1:
            raise Problem(f"Pairs have two fields, source and target, and --fields names only {fields[0]}.")
        yield from ([record] for record in read_records(files[0], fields, pairs=True))
        return
    rows = zip_longest(*(_read_plain(file) for file in files))
    for number, row in enumerate(rows):
        if None in row:
            longer, shorter = files[:: 1 if row[1] is None else -1]
            lengths = f"{longer} has {number + 1 + sum(1 for _ in rows)} lines but {shorter} has {number}"
            raise Problem(f"{lengths}; line n of one must translate line n of the other.")
        yield row


def _read_plain(path: str) -> Records:
    """One text per line."""
    for line in read_lines(path):
        try:
            yield parse_text(line)
        except LineError as bad:
            yield bad


def _make_pair(row: Sequence[Record | LineError]) -> Pair:
    """The pair of a row; raises the error of a bad one."""
    records = []
    for record in row:
        if isinstance(record, LineError):
            raise record
        records.append(record)
    src, trg = ("src", "trg") if len(records) == 1 else ("text", "text")
    return Pair(records[0].get_text(src), records[-1].get_text(trg), records[0].get_refs())


def _advise(bad: LineError) -> str:
    """What to do about a bad row."""
    return CONVERT if isinstance(bad, EncodingError) and bad.suspect else "correct the line"


@dataclass
class _Skipped:
    """The rows that --skip-bad has skipped; too many of them are a Problem."""

    path: str
    rows: int = 0
    wrongly_encoded: int = 0
    first: LineError | None = None

    def add(self, bad: LineError) -> None:
        """Count a bad row."""
        self.rows += 1
        self.wrongly_encoded += isinstance(bad, EncodingError) and bool(bad.suspect)
        self.first = self.first or bad

    def check(self, num_pairs: int) -> None:
        """Raise a Problem if many rows are bad, or if the encoding of the file is another one."""
        total = self.rows + num_pairs
        if self.rows <= min(FEW_ROWS, total // 2) or self.rows <= MAX_SKIPPED_SHARE * total:
            return
        share = f"{self.rows:,} of {total:,} rows of {display_name(self.path)} are bad"
        if 2 * self.wrongly_encoded > self.rows:
            raise Problem(f"{share}, since they look like Windows-1252 or Latin-1: {CONVERT}.")
        raise Problem(f"{share}, which is too many to skip; the first is {self.first}.")


def _read_texts(path: str, extract: Callable[[Record], T]) -> Iterator[T]:
    """What `extract` finds in each row; for two parallel files, SOURCE,TARGET, in those of the first."""
    files = split_corpus_path(path)
    for file in files:
        check_file(file)
    return _extract(files[0], split_fields(path)[1], extract)


def _extract(file: str, fields: Sequence[str], extract: Callable[[Record], T]) -> Iterator[T]:
    for record in read_records(file, fields, pairs=False):
        try:
            if isinstance(record, LineError):
                raise record
            extracted = extract(record)
        except LineError as bad:
            raise Problem(f"{bad}; {_advise(bad)}.") from bad
        yield extracted


def _require_nonempty(texts: list[T], path: str) -> list[T]:
    if not texts:
        raise Problem(f"{display_name(path)} has no lines; there is nothing to evaluate.")
    return texts
