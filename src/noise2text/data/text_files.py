"""Text files line by line: plain, compressed or standard input, each line with its location for messages.

Lines end in \\n or \\r\\n and in nothing else.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from noise2text.core.errors import Problem

__all__ = ["FileLine", "check_file", "display_name", "read_lines", "split_corpus_path"]


def display_name(path: str) -> str:
    """The name of the file in messages."""
    return "standard input" if path == "-" else path


def split_corpus_path(path: str) -> list[str]:
    """The one or two files of a corpus; an existing file may have a comma in its name."""
    if "," not in path or os.path.exists(path):
        return [path]
    parts = path.split(",")
    if len(parts) != 2 or not all(parts) or "-" in parts:
        raise Problem(f"{path!r} does not name two parallel files; write them as SOURCE,TARGET.")
    return parts


def check_file(path: str) -> None:
    """Raise a Problem if there is no such file, before anything is read."""
    if path == "-":
        return
    if not os.path.exists(path):
        raise Problem(f"There is no file {path!r}; check the name and the folder.")
    if os.path.isdir(path):
        raise Problem(f"{path!r} is a folder; name a .jsonl, .tsv or text file in it.")


def _open_binary(path: str) -> BinaryIO:
    if path == "-" and sys.stdin is None:
        raise Problem("There is no standard input to read; name a file instead of -.")
    if path == "-":
        return sys.stdin.buffer
    return cast(BinaryIO, gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb"))


@dataclass(frozen=True)
class FileLine:
    """A line without its line break, and where it was read."""

    location: str
    data: bytes


def read_lines(path: str) -> Iterator[FileLine]:
    """The lines of a file; a byte-order mark at its start is dropped."""
    number = 0
    try:
        file = _open_binary(path)
        try:
            for number, data in enumerate(file, 1):  # binary files are split at \n alone
                data = data.removesuffix(b"\n").removesuffix(b"\r")
                data = data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data
                yield FileLine(f"{display_name(path)}, line {number}", data)
        finally:
            if path != "-":
                file.close()
    except (OSError, EOFError, zlib.error) as error:
        where = f"{display_name(path)} cannot be read beyond line {number}"
        raise Problem(f"{where} ({error}); check that the file is whole and that you may read it.") from error
