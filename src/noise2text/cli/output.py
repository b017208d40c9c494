"""Where `generate` and `sample` write their lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noise2text.core.errors import Problem

if TYPE_CHECKING:
    from noise2text.commands.output_file import OutputLines

__all__ = ["open_output", "refuse_overwriting_input", "warn"]


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


@contextmanager
def open_output(
    output: Path | None, *, resume: bool = False, started_with: Mapping[str, Any] | None = None
) -> Iterator[OutputLines]:
    """Where lines are written: standard output, or a file that appears whole (`open_output_file`)."""
    from noise2text.commands.output_file import OutputLines, open_output_file

    if output is None:
        yield OutputLines(partial(print, flush=True))
        return
    with open_output_file(output, resume=resume, started_with=started_with) as opened:
        yield opened
