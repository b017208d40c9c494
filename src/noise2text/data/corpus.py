"""Pairs of texts, read one line at a time so that a corpus may be larger than memory.

A corpus is one of

- JSON Lines    {"src": "…", "trg": "…"}, and perhaps "refs": ["…", …]      corpus.jsonl
- TSV           source TAB target                                           corpus.tsv
- two files     whose lines are parallel, joined with a comma               corpus.de,corpus.en
- "-"           standard input: JSON Lines if its first line starts with {, else TSV

and any file may be compressed (.gz). A file of another name is looked at like standard input. Lines end in
\\n or \\r\\n and in nothing else: U+2028, \\x0b and \\x85 are characters of a text. Texts are not stripped.
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
    Labelled,
    LineError,
    Record,
    from_json,
    from_text,
    from_tsv,
    is_record,
)
from noise2text.data.text_files import Line, check_file, lines_of, name_of, parts_of

__all__ = [
    "Labelled",
    "Pair",
    "Tally",
    "json_line",
    "read_candidates",
    "read_labelled",
    "read_pairs",
    "read_references",
    "read_sources",
    "read_texts",
    "write_pairs",
]

T = TypeVar("T")

TABLES = (".csv", ".xlsx", ".parquet")
"""What pairs often come in, and where a line is not a pair."""


@dataclass(frozen=True)
class Pair:
    """A source, its target, and further references for evaluation."""

    src: str
    trg: str
    refs: tuple[str, ...] = ()


@dataclass
class Tally:
    """What reading one corpus did so far: the pairs it gave and the bad lines it left out."""

    read: int = 0
    skipped: int = 0


def read_pairs(path: str, *, skip_bad: bool = False, tally: Tally | None = None) -> Iterator[Pair]:
    """The pairs of a corpus, in order; a bad line is a Problem, or is counted and left out (`skip_bad`)."""
    parts = parts_of(path)
    for part in parts:
        check_file(part)
    readers = _single(path) if len(parts) == 1 else _parallel(*parts)
    return _sound(readers, path, skip_bad=skip_bad, tally=Tally() if tally is None else tally)


def read_sources(path: str) -> Iterator[str]:
    """The texts to generate from: one a line, "src" (or "text") of JSON Lines, or a TSV's first column.

    Of two parallel files, SOURCE,TARGET, they are the first one's lines.
    """
    parts = parts_of(path)
    for part in parts:
        check_file(part)
    return _texts(parts[0], lambda record: record.first("src", "text"))


def read_texts(path: str) -> list[str]:
    """The texts to evaluate: one a line, or JSON Lines of strings or objects with "hyp", "text" or "trg"."""
    check_file(path)
    return _filled(list(_texts(path, lambda record: record.first("hyp", "text", "trg"))), path)


def read_candidates(path: str) -> list[list[str]] | None:
    """The "candidates" of each line of JSON Lines; none if no line has them."""
    check_file(path)
    found = list(_texts(path, Record.candidates))
    if None in found and any(own is not None for own in found):
        where = f"{name_of(path)}, line {found.index(None) + 1}"
        raise Problem(f"{where}: there are no candidates, which other lines have.")
    return [own for own in found if own is not None] or None


def read_references(path: str) -> list[tuple[str, ...]]:
    """The references of each line: the line itself, or of JSON Lines "trg" and then "refs", or "text"."""
    check_file(path)
    return _filled(list(_texts(path, Record.references)), path)


def read_labelled(path: str) -> list[Labelled]:
    """The texts of JSON Lines, "trg" or "text", with their "label", a string or a whole number."""
    check_file(path)
    labelled = list(_texts(path, Record.labelled))
    if not labelled:
        raise Problem(f"{name_of(path)} holds no line; a line is a JSON object with trg (or text) and label.")
    return labelled


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Writes the pairs as JSON Lines."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(json_line, pairs))


def json_line(pair: Pair) -> str:
    """The pair as a line of JSON Lines, with its end."""
    refs = {"refs": list(pair.refs)} if pair.refs else {}
    return json.dumps({"src": pair.src, "trg": pair.trg, **refs}, ensure_ascii=False) + "\n"


def _suffix(path: str) -> str:
    return Path(path.lower().removesuffix(".gz")).suffix


# Lines into pairs and texts


def _single(path: str) -> Iterator[Callable[[], Pair]]:
    """A reader for each line of a file; the first line decides what a file of unknown kind is."""
    if _suffix(path) in TABLES:
        raise Problem(f"{path} is a table that is not read; write it as .tsv: source TAB target, no header.")
    lines = lines_of(path)
    first = next(lines, None)
    if first is not None:
        sniffed = from_json if first.data.startswith((b"{", b"[")) else from_tsv
        parse = FORMATS.get(_suffix(path), sniffed)
        yield from (partial(_pair, line, parse) for line in chain([first], lines))


def _pair(line: Line, parse: Callable[[Line], Record]) -> Pair:
    record = parse(line)
    return Pair(record.side("src"), record.side("trg"), record.refs())


def _parallel(source: str, target: str) -> Iterator[Callable[[], Pair]]:
    """A reader for each pair of lines."""
    rows = zip_longest(lines_of(source), lines_of(target))
    for before, (src, trg) in enumerate(rows):
        if src is None or trg is None:
            longer, shorter = (source, target) if trg is None else (target, source)
            counts = f"{longer} has {before + 1 + sum(1 for _ in rows)} lines but {shorter} has {before}"
            raise Problem(f"{counts}; line n of one must translate line n of the other.")
        yield partial(_joined, src, trg)


def _joined(src: Line, trg: Line) -> Pair:
    return Pair(from_text(src).side("text"), from_text(trg).side("text"))


def _sound(
    readers: Iterator[Callable[[], Pair]], path: str, *, skip_bad: bool, tally: Tally
) -> Iterator[Pair]:
    """The pairs that can be read, and a Problem if there are none."""
    before = tally.read
    for read in readers:
        try:
            pair = read()
        except LineError as bad:
            if not skip_bad:
                raise Problem(f"{bad}; correct the line or pass --skip-bad to leave out such lines.") from bad
            tally.skipped += 1
            continue
        tally.read += 1
        yield pair
    if tally.read == before:
        raise Problem(
            f"{name_of(path)} holds no pair; a line is a JSON object with src and trg, or source TAB target."
        )


def _texts(path: str, take: Callable[[Record], T]) -> Iterator[T]:
    """What `take` finds in each line: a text, unless the file's name or its first line say otherwise."""
    lines = lines_of(path)
    first = next(lines, None)
    if first is None:
        return
    parse = FORMATS.get(_suffix(path), from_json if is_record(first) else from_text)
    for line in chain([first], lines):
        try:
            taken = take(parse(line))
        except LineError as bad:
            raise Problem(f"{bad}; correct the line.") from bad
        yield taken


def _filled(texts: list[T], path: str) -> list[T]:
    if not texts:
        raise Problem(f"{name_of(path)} holds no line; there is nothing to evaluate.")
    return texts
