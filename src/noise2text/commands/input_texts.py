"""The texts that `generate` works on: from the command line, a file, a pipe or a terminal."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noise2text.commands.input_windows import CutWindows, arriving_windows, growing_windows
from noise2text.core.errors import Problem
from noise2text.data.corpus import read_sources
from noise2text.data.text_files import split_corpus_path

__all__ = ["InputTexts", "find_texts"]


@dataclass(frozen=True)
class InputTexts:
    """Texts, their number if it is known beforehand, and how they are cut into windows.

    `identity` changes with the texts of a file, so that a job is not resumed with others; those of a pipe
    are not known beforehand.
    """

    texts: Iterable[str]
    total: int | None
    cut_windows: CutWindows
    identity: str


def find_texts(given: Sequence[str], path: str | None, *, line_by_line: bool) -> InputTexts:
    """The given texts, those of the file, or without both those of standard input.

    With `line_by_line`, a pipe or a terminal is answered as its lines arrive.
    """
    if given and path is not None:
        raise Problem(f"Give texts or --input, not both: {given[0]!r} and --input {path}.")
    if given:
        return InputTexts(given, len(given), growing_windows, "")
    if path is None and sys.stdin is not None and sys.stdin.isatty():
        raise Problem(
            "There is no text: write it after the model in quotes, give --input FILE, or try noise2text chat."
        )
    path = "-" if path is None else path
    texts = read_sources(path)
    if all(map(os.path.isfile, split_corpus_path(path))):  # find a bad line now rather than after hours
        total, checksum = _identify(read_sources(path))
        return InputTexts(texts, total, growing_windows, f"{path} ({total:,} texts, SHA-256 {checksum})")
    return InputTexts(texts, None, arriving_windows if line_by_line else growing_windows, path)


def _identify(texts: Iterable[str]) -> tuple[int, str]:
    """The number of the texts, and the beginning of a checksum of all of them."""
    total, digest = 0, hashlib.sha256()
    for text in texts:
        total += 1
        digest.update(text.encode() + b"\n")
    return total, digest.hexdigest()[:16]
