"""The texts that `generate` works on: from the command line, a file, a pipe or a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noise2text.commands.input_windows import CutWindows, arriving_windows, growing_windows
from noise2text.core.errors import Problem
from noise2text.data.corpus import read_sources
from noise2text.data.corpus_paths import split_corpus_path

__all__ = ["InputTexts", "find_texts"]


@dataclass(frozen=True)
class InputTexts:
    """Texts, their number if it is known beforehand, and how they are cut into windows."""

    texts: Iterable[str]
    total: int | None
    cut_windows: CutWindows


def find_texts(given: Sequence[str], path: str | None, *, line_by_line: bool) -> InputTexts:
    """The given texts, those of the file, or without both those of standard input.

    With `line_by_line`, a pipe or a terminal is answered as its lines arrive.
    """
    if given and path is not None:
        raise Problem(f"Give texts or --input, not both: {given[0]!r} and --input {path}.")
    if given:
        return InputTexts(given, len(given), growing_windows)
    if path is None and sys.stdin is not None and sys.stdin.isatty():
        raise Problem(
            "There is no text: write it after the model in quotes, give --input FILE, or try noise2text chat."
        )
    path = "-" if path is None else path
    texts = read_sources(path)
    if all(map(os.path.isfile, split_corpus_path(path))):  # find a bad line now rather than after hours
        return InputTexts(texts, sum(1 for _ in read_sources(path)), growing_windows)
    return InputTexts(texts, None, arriving_windows if line_by_line else growing_windows)
