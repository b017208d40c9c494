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

from noise2text.problem import Problem
from noise2text.text.lines import Line, check_file, lines_of, name_of, parts_of

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


@dataclass(frozen=True)
class Pair:
    """A source, its target, and further references for evaluation."""

    src: str
    trg: str
    refs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Labelled:
    """A text and the name of its class."""

    text: str
    label: str


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
    found = list(_texts(path, _Record.candidates))
    if None in found and any(own is not None for own in found):
        where = f"{name_of(path)}, line {found.index(None) + 1}"
        raise Problem(f"{where}: there are no candidates, which other lines have.")
    return [own for own in found if own is not None] or None


def read_references(path: str) -> list[tuple[str, ...]]:
    """The references of each line: the line itself, or of JSON Lines "trg" and then "refs", or "text"."""
    check_file(path)
    return _filled(list(_texts(path, _Record.references)), path)


def read_labelled(path: str) -> list[Labelled]:
    """The texts of JSON Lines, "trg" or "text", with their "label", a string or a whole number."""
    check_file(path)
    labelled = list(_texts(path, _Record.labelled))
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


class _LineError(Exception):
    """Where a line is and what is wrong with it."""

    def __init__(self, line: Line, reason: str) -> None:
        super().__init__(f"{line.place}: {reason}")


NAMES = {"src": "the source", "trg": "the target", "text": "the text"}


@dataclass(frozen=True)
class _Record:
    """The fields of a line; they are checked when asked for."""

    line: Line
    fields: dict[str, object]

    def text(self, key: str) -> str:
        """A field that must be a string."""
        if key not in self.fields:
            raise _LineError(self.line, f'there is no field "{key}"')
        return self.string(self.fields[key], key)

    def string(self, value: object, key: str) -> str:
        """The value, if it is a text that UTF-8 can hold."""
        if not isinstance(value, str):
            raise _LineError(self.line, f'"{key}" is not a string')
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON can escape one half of a surrogate pair
            raise _LineError(self.line, f'"{key}" holds half of a surrogate pair') from error
        return value

    def side(self, key: str) -> str:
        """A field that must also say something."""
        text = self.text(key)
        if not text.strip():
            raise _LineError(self.line, f"{NAMES[key]} is empty")
        return text

    def refs(self) -> tuple[str, ...]:
        """The further references, none if the field is missing."""
        refs = self.fields.get("refs")
        if refs is None:
            return ()
        if not isinstance(refs, list):
            raise _LineError(self.line, '"refs" is not a list')
        return tuple(self.string(ref, "refs") for ref in refs)

    def candidates(self) -> list[str] | None:
        """The texts to choose from, bare or each with its "text"; none if the field is missing."""
        found = self.fields.get("candidates")
        if found is None:
            return None
        if not isinstance(found, list):
            raise _LineError(self.line, '"candidates" is not a list')
        bare = [one.get("text") if isinstance(one, dict) else one for one in found]
        return [self.string(one, "candidates") for one in bare]

    def first(self, *keys: str) -> str:
        """The first of the fields that is there."""
        for key in keys:
            if key in self.fields:
                return self.text(key)
        raise _LineError(self.line, f"there is no field {' or '.join(json.dumps(key) for key in keys)}")

    def references(self) -> tuple[str, ...]:
        """The target and then the other references, or these alone if the target is among them."""
        refs = self.refs()
        if refs and "trg" not in self.fields:
            return refs
        target = self.first("trg", "text")
        return refs if target in refs else (target, *refs)

    def labelled(self) -> Labelled:
        """The text, which must say something, and its label."""
        label = self.fields.get("label")
        if isinstance(label, bool) or not isinstance(label, str | int) or label == "":
            raise _LineError(self.line, 'there is no "label" that is a string or a whole number')
        return Labelled(self.side("trg" if "trg" in self.fields else "text"), str(label))


def _decoded(line: Line) -> str:
    try:
        return line.data.decode()
    except UnicodeDecodeError as error:
        raise _LineError(line, f"byte {error.start + 1} of the line is not valid UTF-8") from error


def _from_text(line: Line) -> _Record:
    return _Record(line, {"text": _decoded(line)})


def _from_tsv(line: Line) -> _Record:
    columns = _decoded(line).split("\t")
    if len(columns) != 2:
        raise _LineError(line, f"{len(columns) - 1} tabs, where source TAB target has one")
    return _Record(line, {"src": columns[0], "trg": columns[1]})


def _from_json(line: Line) -> _Record:
    """The object; a bare string is a text, and so is an empty line."""
    text = _decoded(line)
    try:
        value = json.loads(text) if text.strip() else ""
    except (ValueError, RecursionError) as error:
        raise _LineError(line, "this is not JSON") from error
    if isinstance(value, str):
        return _Record(line, {"text": value})
    if not isinstance(value, dict):
        raise _LineError(line, "this is not a JSON object")
    return _Record(line, value)


FORMATS = {".jsonl": _from_json, ".ndjson": _from_json, ".tsv": _from_tsv}


def _suffix(path: str) -> str:
    return Path(path.lower().removesuffix(".gz")).suffix


# Lines into pairs and texts


def _single(path: str) -> Iterator[Callable[[], Pair]]:
    """A reader for each line of a file; the first line decides what a file of unknown kind is."""
    lines = lines_of(path)
    first = next(lines, None)
    if first is not None:
        sniffed = _from_json if first.data.startswith(b"{") else _from_tsv
        parse = FORMATS.get(_suffix(path), sniffed)
        yield from (partial(_pair, line, parse) for line in chain([first], lines))


def _pair(line: Line, parse: Callable[[Line], _Record]) -> Pair:
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
    return Pair(_from_text(src).side("text"), _from_text(trg).side("text"))


def _sound(
    readers: Iterator[Callable[[], Pair]], path: str, *, skip_bad: bool, tally: Tally
) -> Iterator[Pair]:
    """The pairs that can be read, and a Problem if there are none."""
    before = tally.read
    for read in readers:
        try:
            pair = read()
        except _LineError as bad:
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


def _texts(path: str, take: Callable[[_Record], T]) -> Iterator[T]:
    """What `take` finds in each line of a file that holds one text a line unless its name says otherwise."""
    parse = FORMATS.get(_suffix(path), _from_text)
    for line in lines_of(path):
        try:
            taken = take(parse(line))
        except _LineError as bad:
            raise Problem(f"{bad}; correct the line.") from bad
        yield taken


def _filled(texts: list[T], path: str) -> list[T]:
    if not texts:
        raise Problem(f"{name_of(path)} holds no line; there is nothing to evaluate.")
    return texts
