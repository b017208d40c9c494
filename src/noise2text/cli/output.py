"""Where `generate` and `sample` write their lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noise2text.core.errors import Problem

if TYPE_CHECKING:
    from noise2text.commands.output_file import OutputLines

__all__ = [
    "escape_controls",
    "open_output",
    "print_text",
    "refuse_overwriting_input",
    "require_folder_of",
    "warn",
]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, which a terminal obeys, but for tabs and line breaks."""


def print_text(text: str) -> None:
    """Print a text of a model at once; on a terminal, its control characters are escaped."""
    print(escape_controls(text), flush=True)


def escape_controls(text: str) -> str:
    """The text; for a terminal, which would obey them, its control characters are escaped."""
    if not sys.stdout.isatty():
        return text
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def warn(line: str) -> None:
    """Print a line on standard error."""
    print(f"noise2text: {line}", file=sys.stderr)


def refuse_overwriting_input(output: Path | None, input: str) -> None:
    """Raise a Problem if the output is (one of) the input files."""
    from noise2text.data.corpus_paths import split_corpus_path

    if output is None or not output.exists():
        return
    if any(Path(part).exists() and output.samefile(part) for part in split_corpus_path(input)):
        raise Problem(f"{output} is also the input; choose another file for the output.")


def require_folder_of(output: Path | None) -> None:
    """Raise a Problem if the folder of an output does not exist, before anything is generated for it."""
    if output is None or output.parent.is_dir():
        return
    if output.parent.exists():
        raise Problem(f"{output.parent} is a file, so {output} cannot be written: choose another folder.")
    raise Problem(f"There is no folder {output.parent} for the output {output}: make it, or name another.")


@contextmanager
def open_output(
    output: Path | None, *, resume: bool = False, started_with: Mapping[str, Any] | None = None
) -> Iterator[OutputLines]:
    """Where lines are written: standard output, or a file that appears whole (`open_output_file`)."""
    from noise2text.commands.output_file import OutputLines, open_output_file

    if output is None:
        if sys.__stdout__ is None:  # it was closed when the program started
            raise Problem("There is no standard output to write to: give --output FILE.")
        yield OutputLines(print_text)
        return
    with open_output_file(output, resume=resume, started_with=started_with) as opened:
        yield opened
