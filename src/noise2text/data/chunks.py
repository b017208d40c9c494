"""Pieces of a stream that are held in memory together: bounded in their number and in their characters.

Tokenizing takes about 150 bytes per character, so that a few thousand long texts would take gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["MAX_CHUNK_CHARACTERS", "take_chunk"]

T = TypeVar("T")

MAX_CHUNK_CHARACTERS = 1 << 21
"""The characters above which a chunk takes no further item: about 300 MiB while they are tokenized."""


def take_chunk(
    stream: Iterator[T], count: int, *, measure: Callable[[T], int], limit: int = MAX_CHUNK_CHARACTERS
) -> list[T]:
    """The next items of a stream: at most `count`, and none after `limit` characters; at least one.

    >>> take_chunk(iter(["abc", "de", "f"]), 3, measure=len, limit=4)
    ['abc', 'de']
    """
    chunk: list[T] = []
    size = 0
    while len(chunk) < count and size < limit:
        try:
            item = next(stream)
        except StopIteration:
            break
        chunk.append(item)
        size += measure(item)
    return chunk
