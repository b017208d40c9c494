"""The texts that `generate` works on: from the command line, a file, a pipe or a terminal.

They come in windows, which are sorted by length and generated together. A file is cut into 1, 2, 4, 8, 16,
16, … batches: the first texts come soon, and later windows have batches of similar lengths. The cuts depend
on nothing else, so a resumed job computes the same windows. A terminal or a pipe is answered as its lines
arrive: a window is what is there when the window before is finished, and at least one line.
"""

from __future__ import annotations

import hashlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from noise2text.core.errors import Problem
from noise2text.data.chunks import take_chunk
from noise2text.data.corpus import read_sources
from noise2text.data.corpus_paths import split_corpus_path

__all__ = ["WINDOW", "CutWindows", "InputTexts", "arriving_windows", "find_texts", "growing_windows"]

WINDOW = 16  # batches of the largest window

CutWindows = Callable[[Iterable[str], int], Iterator[list[str]]]
"""From the texts and the sentences per batch to windows."""


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
        return InputTexts(texts, total, growing_windows, f"{total:,} texts, SHA-256 {checksum}")
    return InputTexts(texts, None, arriving_windows if line_by_line else growing_windows, path)


def _identify(texts: Iterable[str]) -> tuple[int, str]:
    """The number of the texts, and the beginning of a checksum of all of them."""
    total, digest = 0, hashlib.sha256()
    for text in texts:
        total += 1
        digest.update(text.encode() + b"\n")
    return total, digest.hexdigest()[:16]


def growing_windows(texts: Iterable[str], batch: int) -> Iterator[list[str]]:
    """Windows of 1, 2, 4, … batches of texts, up to `WINDOW`; fewer of very long texts."""
    stream, batches = iter(texts), 1
    while window := take_chunk(stream, batches * batch, measure=len):
        yield window
        batches = min(2 * batches, WINDOW)


def arriving_windows(texts: Iterable[str], batch: int) -> Iterator[list[str]]:
    """Windows of the texts that have arrived by now; waits for one text and for no more."""
    limit = batch * WINDOW
    arrived: queue.Queue[str | _End] = queue.Queue(maxsize=limit)
    threading.Thread(target=_receive, args=(texts, arrived), daemon=True).start()
    while True:
        window = take_chunk(_take_arrived(arrived), limit, measure=len)
        end = window.pop() if isinstance(window[-1], _End) else None
        received = [text for text in window if isinstance(text, str)]
        if received:
            yield received
        if isinstance(end, _End):
            if end.error is not None:
                raise end.error
            return


class _End:
    """The end of the texts, or the error that ended them."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def __len__(self) -> int:
        return 0


def _take_arrived(arrived: queue.Queue[str | _End]) -> Iterator[str | _End]:
    """What is in the queue up to the end of the texts; waits for the first alone."""
    item = arrived.get()
    yield item
    while not isinstance(item, _End) and not arrived.empty():
        item = arrived.get()
        yield item


def _receive(texts: Iterable[str], arrived: queue.Queue[str | _End]) -> None:
    """Put every text, and then the end, into the queue."""
    try:
        for text in texts:
            arrived.put(text)
    except BaseException as error:  # the reader of the queue raises it
        arrived.put(_End(error))
    else:
        arrived.put(_End())
