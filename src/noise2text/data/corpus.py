"""Corpora of text pairs, read line by line, so that they may be larger than memory.

A corpus is one of

- JSON Lines    {"src": "…", "trg": "…"}, and perhaps "refs": ["…", …]      corpus.jsonl
- TSV           source TAB target                                           corpus.tsv
- two files     with parallel lines, joined by a comma                      corpus.de,corpus.en
- "-"           standard input: JSON Lines if its first line starts with {, else TSV

and any file may be compressed (.gz). The format of a file with another name is detected as for standard
input. Only \\n and \\r\\n end a line: U+2028, \\x0b and \\x85 are part of a text. Texts are not stripped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TypeVar

from noise2text.core.errors import Problem
from noise2text.data.formats import (
    FORMATS,
    LabelledText,
    LineError,
    Record,
    is_record,
    join_references,
    parse_json,
    parse_text,
    parse_tsv,
)
from noise2text.data.text_files import FileLine, check_file, display_name, read_lines, split_corpus_path

__all__ = [
    "LabelledText",
    "Pair",
    "ReadCounts",
    "format_json_line",
    "read_candidates",
    "read_labelled",
    "read_pairs",
    "read_references",
    "read_sources",
    "read_texts",
    "write_pairs",
]

T = TypeVar("T")

UNSUPPORTED_TABLES = (".csv", ".xlsx", ".parquet")
"""Formats that pairs often come in but that are not read, because a line is not a pair."""


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
    """How many pairs of a corpus have been read, and how many bad lines skipped, so far."""

    num_pairs: int = 0
    num_skipped: int = 0


def read_pairs(path: str, *, skip_bad: bool = False, counts: ReadCounts | None = None) -> Iterator[Pair]:
    """The pairs of a corpus, in order; a bad line is a Problem, or skipped and counted (`skip_bad`)."""
    parts = split_corpus_path(path)
    for part in parts:
        check_file(part)
    parsers = _read_single_file(path) if len(parts) == 1 else _read_parallel_files(*parts)
    return _read_valid_pairs(
        parsers, path, skip_bad=skip_bad, counts=ReadCounts() if counts is None else counts
    )


def read_sources(path: str) -> Iterator[str]:
    """The source texts: one per line, "src" (or "text") of JSON Lines, or the first column of TSV.

    Of two parallel files, SOURCE,TARGET, they are the lines of the first.
    """
    parts = split_corpus_path(path)
    for part in parts:
        check_file(part)
    return _read_records(parts[0], lambda record: record.get_first_text("src", "text"))


def read_texts(path: str) -> list[str]:
    """The texts to evaluate: one per line, or JSON strings or objects with "hyp", "text" or "trg"."""
    check_file(path)
    return _require_nonempty(
        list(_read_records(path, lambda record: record.get_first_text("hyp", "text", "trg"))), path
    )


def read_candidates(path: str) -> list[list[str]] | None:
    """The "candidates" of each line of JSON Lines; None if no line has them."""
    check_file(path)
    found = list(_read_records(path, Record.get_candidates))
    if None in found and any(candidates is not None for candidates in found):
        where = f"{display_name(path)}, line {found.index(None) + 1}"
        raise Problem(f"{where}: there are no candidates, which other lines have.")
    return [candidates for candidates in found if candidates is not None] or None


def read_references(path: str) -> list[tuple[str, ...]]:
    """The references of each line: the line itself, or for JSON Lines "trg" and "refs", or "text"."""
    check_file(path)
    return _require_nonempty(list(_read_records(path, Record.get_references)), path)


def read_labelled(path: str) -> list[LabelledText]:
    """The texts of JSON Lines, "trg" or "text", with their "label", a string or an integer."""
    check_file(path)
    labelled = list(_read_records(path, Record.get_labelled_text))
    if not labelled:
        raise Problem(
            f"{display_name(path)} holds no line; a line is a JSON object with trg (or text) and label."
        )
    return labelled


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write the pairs as JSON Lines."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(format_json_line, pairs))


def format_json_line(pair: Pair) -> str:
    """The pair as a line of JSON Lines, including the line break."""
    refs = {"refs": list(pair.refs)} if pair.refs else {}
    return json.dumps({"src": pair.src, "trg": pair.trg, **refs}, ensure_ascii=False) + "\n"


def _format_suffix(path: str) -> str:
    return Path(path.lower().removesuffix(".gz")).suffix


# Lines into pairs and texts


def _read_single_file(path: str) -> Iterator[Callable[[], Pair]]:
    """A parser for each line of a file; the first line decides the format if the name does not."""
    if _format_suffix(path) in UNSUPPORTED_TABLES:
        raise Problem(f"{path} is a table that is not read; write it as .tsv: source TAB target, no header.")
    lines = read_lines(path)
    first = next(lines, None)
    if first is not None:
        guessed_format = parse_json if first.data.startswith((b"{", b"[")) else parse_tsv
        parse = FORMATS.get(_format_suffix(path), guessed_format)
        yield from (partial(_parse_pair, line, parse) for line in chain([first], lines))


def _parse_pair(line: FileLine, parse: Callable[[FileLine], Record]) -> Pair:
    record = parse(line)
    return Pair(record.get_nonempty_text("src"), record.get_nonempty_text("trg"), record.get_refs())


def _read_parallel_files(source: str, target: str) -> Iterator[Callable[[], Pair]]:
    """A parser for each pair of lines."""
    rows = zip_longest(read_lines(source), read_lines(target))
    for before, (src, trg) in enumerate(rows):
        if src is None or trg is None:
            longer, shorter = (source, target) if trg is None else (target, source)
            counts = f"{longer} has {before + 1 + sum(1 for _ in rows)} lines but {shorter} has {before}"
            raise Problem(f"{counts}; line n of one must translate line n of the other.")
        yield partial(_pair_lines, src, trg)


def _pair_lines(src: FileLine, trg: FileLine) -> Pair:
    return Pair(parse_text(src).get_nonempty_text("text"), parse_text(trg).get_nonempty_text("text"))


def _read_valid_pairs(
    parsers: Iterator[Callable[[], Pair]], path: str, *, skip_bad: bool, counts: ReadCounts
) -> Iterator[Pair]:
    """The pairs that can be parsed; a Problem if there are none."""
    before = counts.num_pairs
    for parse in parsers:
        try:
            pair = parse()
        except LineError as bad:
            if not skip_bad:
                raise Problem(f"{bad}; correct the line or pass --skip-bad to leave out such lines.") from bad
            counts.num_skipped += 1
            continue
        counts.num_pairs += 1
        yield pair
    if counts.num_pairs == before:
        raise Problem(
            f"{display_name(path)} holds no pair; "
            "a line is a JSON object with src and trg, or source TAB target."
        )


def _read_records(path: str, extract: Callable[[Record], T]) -> Iterator[T]:
    """What `extract` finds in each line: plain text, unless the file's name or first line says otherwise."""
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        return
    parse = FORMATS.get(_format_suffix(path), parse_json if is_record(first) else parse_text)
    for line in chain([first], lines):
        try:
            extracted = extract(parse(line))
        except LineError as bad:
            raise Problem(f"{bad}; correct the line.") from bad
        yield extracted


def _require_nonempty(texts: list[T], path: str) -> list[T]:
    if not texts:
        raise Problem(f"{display_name(path)} holds no line; there is nothing to evaluate.")
    return texts
