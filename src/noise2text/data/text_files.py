"""Text files line by line: plain, compressed or standard input, each line with its location for messages.

Lines end in \\n or \\r\\n and in nothing else.
"""

from __future__ import annotations

import codecs
import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import IO, NamedTuple

from noise2text.core.errors import Problem
from noise2text.data.corpus_paths import display_name

__all__ = ["MAX_LINE_BYTES", "FileLine", "read_lines"]


MAX_LINE_BYTES = 1 << 20
"""The longest line of a corpus: longer ones are no sentence, and would take memory many times their size."""


class FileLine(NamedTuple):
    """A line without its line break, and where it was read."""

    path: str
    number: int
    data: bytes
    unit: str = "line"  # or the element of an array, or the row of a table

    @property
    def location(self) -> str:
        """The file and the number of the line, for messages."""
        return f"{display_name(self.path)}, {self.unit} {self.number}"


def read_lines(path: str) -> Iterator[FileLine]:
    """The lines of a file as UTF-8; a byte-order mark at its start decides the encoding and is dropped."""
    if path == "-" and sys.stdin is None:
        raise Problem("There is no standard input to read; name a file instead of -.")
    number = 0
    try:
        open_file = gzip.open if path.lower().endswith(".gz") else open
        with _open_standard_input() if path == "-" else open_file(path, "rb") as file:
            for number, data in enumerate(_decode_lines(file, path), 1):
                yield FileLine(path, number, data.removesuffix(b"\n").removesuffix(b"\r"))
    except (OSError, EOFError, zlib.error) as error:
        where = f"{display_name(path)} cannot be read beyond line {number}"
        raise Problem(f"{where} ({error}); check that it is complete and that you may read it.") from error


def _decode_lines(file: IO[bytes] | gzip.GzipFile, path: str) -> Iterator[bytes]:
    """The lines with their ends, as UTF-8; binary files are split at \\n alone."""
    pieces = iter(lambda: file.readline(_PIECE_BYTES), b"")
    first = next(pieces, b"")
    mark, encoding = next(
        ((mark, encoding) for mark, encoding in _MARKS.items() if first.startswith(mark)), (b"", "")
    )
    if encoding:
        yield from _transcode(chain([first.removeprefix(mark)], pieces), encoding, path)
        return
    start = first[:64]
    if start.count(0) * 4 > len(start):
        raise Problem(
            f"{display_name(path)} looks like UTF-16 without a byte-order mark: save it as UTF-8, or "
            "convert it (iconv -f UTF-16 -t UTF-8)."
        )
    is_continued = False  # of a line longer than a piece only the first piece is read, which is refused
    for number, piece in enumerate(chain([first] if first else [], pieces)):
        if not is_continued:
            yield piece if number else piece.removeprefix(codecs.BOM_UTF8)
        is_continued = len(piece) == _PIECE_BYTES and not piece.endswith(b"\n")


_PIECE_BYTES = MAX_LINE_BYTES + 8  # over the limit even without a byte-order mark and a line break

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",  # begins like that of UTF-16
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def _transcode(parts: Iterable[bytes], encoding: str, path: str) -> Iterator[bytes]:
    """The lines of text in another encoding, whose bytes come in any parts, as UTF-8."""
    decoder, pending = codecs.getincrementaldecoder(encoding)(), ""
    try:
        for part in parts:
            *whole, pending = (pending + decoder.decode(part)).split("\n")
            yield from (f"{line}\n".encode() for line in whole)
            pending = pending[:_PIECE_BYTES]  # longer than a line may be, so that it is refused
        pending += decoder.decode(b"", final=True)
        if pending:
            yield pending.encode()
    except UnicodeError as error:
        raise Problem(f"{display_name(path)} begins as {encoding} but is not: save it as UTF-8.") from error


def _open_standard_input() -> AbstractContextManager[IO[bytes]]:
    """Standard input as a file of its own, so that a thread that reads it cannot block the program's end."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (OSError, ValueError):  # it is not a file of the operating system
        return nullcontext(sys.stdin.buffer)
