"""Overlapping batches: the host prepares one batch while the device still works on another.

A decoder that is cut into stages waits for the device only at the start of a stage. While it would wait for
one batch, another batch's stage has been sent to the device already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

__all__ = ["overlap"]


def overlap(items: Iterable[Any], stages: Sequence[Callable[[Any], Any]]) -> Iterator[Any]:
    """What the last stage makes of each item, in order; a later item's first stage runs before.

    >>> list(overlap([1, 2, 3], [lambda x: x + 1, lambda x: x * 10]))
    [20, 30, 40]
    """
    waiting: list[tuple[int, Any]] = []  # (next stage, its input), the newest first
    for item in items:
        waiting.insert(0, (0, item))
        yield from _advance(waiting, stages)
    while waiting:
        yield from _advance(waiting, stages)


def _advance(waiting: list[tuple[int, Any]], stages: Sequence[Callable[[Any], Any]]) -> list[Any]:
    """Take every waiting item one stage further; returns those that have passed the last one."""
    moved = [(number + 1, stages[number](value)) for number, value in waiting]
    waiting[:] = [each for each in moved if each[0] < len(stages)]
    return [value for number, value in moved if number == len(stages)]
