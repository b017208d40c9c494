"""Lists that are read on a terminal of any width, and by grep."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

__all__ = ["find_width", "print_folded", "print_row"]

MIN_COLUMN = 24
"""A column of values is at least so wide."""


def find_width() -> int | None:
    """The columns of the terminal, at least 20; none if the output goes to a pipe or a file."""
    if not (sys.stdout.isatty() or "COLUMNS" in os.environ):
        return None
    return max(20, shutil.get_terminal_size().columns)


def print_folded(text: str) -> None:
    """Print a text whose lines are folded between words at the terminal's width; a pipe gets whole lines.

    What is folded is indented by two more columns than its line.
    """
    width = find_width()
    if width is None:
        print(text)
        return
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        print(_fold(line.lstrip(), width, first=indent, others=indent + "  "))


def print_row(name: str, value: str, *, indent: int = 0, column: int) -> None:
    """Print a value beside its name; `column` is where the values of a list begin.

    A value that does not fit the terminal is folded within its column, or where that is too narrow under its
    name.
    """
    line, width = f"{' ' * indent}{name}".ljust(column) + value, find_width()
    if width is None or len(line) <= width:
        print(line)
    elif width - column < MIN_COLUMN:
        print_folded(f"{' ' * indent}{name} {value}")
    else:
        print(_fold(value, width, first=line[:column], others=" " * column))


def _fold(text: str, width: int, *, first: str, others: str) -> str:
    folded = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(folded)
