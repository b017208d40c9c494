"""Lists that are read on a terminal of any width, and by grep."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

__all__ = ["find_width", "print_folded"]


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
        folded = textwrap.wrap(
            line.lstrip(),
            width,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        print("\n".join(folded))
