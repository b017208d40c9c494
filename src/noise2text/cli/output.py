"""Where `generate` and `sample` write their lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from noise2text.core.errors import Problem

__all__ = ["open_output", "refuse_overwriting_input", "warn"]


def warn(line: str) -> None:
    """Print a line on standard error."""
    print(f"noise2text: {line}", file=sys.stderr)


def refuse_overwriting_input(output: Path | None, input: str) -> None:
    """Raise a Problem if the output is (one of) the input files."""
    from noise2text.data.text_files import split_corpus_path

    if output is None or not output.exists():
        return
    if any(Path(part).exists() and output.samefile(part) for part in split_corpus_path(input)):
        raise Problem(f"{output} is also the input; choose another file for the output.")


@contextmanager
def open_output(output: Path | None) -> Iterator[Callable[[str], None]]:
    """A function that writes one line and flushes it, so that finished lines survive a crash.

    An existing file is emptied with the first line or at the end, so that a mistake found before that loses
    nothing and leaves no empty file.
    """
    if output is None:
        yield lambda text: print(text, flush=True)
        return
    if output.suffix == ".gz":
        raise Problem(f"{output} is written as plain text, not compressed: leave out the .gz.")
    new = not output.exists()
    try:
        file = output.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise Problem(f"{output} cannot be written: {error.strerror}.") from error
    old = output.is_file()  # a pipe, for example, has no old content

    def write(text: str) -> None:
        nonlocal old
        if old:
            file.truncate(0)
            old = False
        print(text, file=file, flush=True)

    try:
        with file:
            yield write
            if old:
                file.truncate(0)
    except BaseException:
        if new and old:  # nothing was written
            output.unlink()
        raise
