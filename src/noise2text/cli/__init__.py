"""The command line: parses, calls, prints. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from noise2text.cli import (
    analysing,
    exporting,
    judging,
    learning,
    looking,
    preparing,
    reporting,
    studying,
    writing,
)
from noise2text.cli.options import app
from noise2text.core.errors import Problem, Stopped
from noise2text.core.version import __version__

__all__ = [
    "analysing",
    "app",
    "exporting",
    "judging",
    "learning",
    "looking",
    "main",
    "preparing",
    "reporting",
    "studying",
    "writing",
]


def main() -> None:
    """Run a command; a user's mistake is one sentence and exit code 1."""
    try:
        _run()
    except SystemExit as end:
        if os.environ.get("WORLD_SIZE", "1") != "1":
            _exit_now(end)
        raise


def _exit_now(end: SystemExit) -> NoReturn:
    """End one of several processes at once: gloo's threads may still hold tensors of the last exchange, and
    abort the process if they let them go while the interpreter ends."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or there never was any
            stream.flush()
    os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))


def _run() -> None:
    # Waiting threads that spin for long slow a run down many times over when other programs are busy, too.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as all files are, whatever the terminal's language
    try:
        app()
    except Problem as problem:
        print(f"noise2text: {problem}", file=sys.stderr)
        sys.exit(1)
    except Stopped as stopped:
        if os.environ.get("RANK", "0") == "0":  # of several processes, which all stop, one says so
            print(f"noise2text: {stopped}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except (OSError, RuntimeError, MemoryError) as error:
        sentence = _describe_system_error(error)
        if sentence is None:
            raise
        print(f"noise2text: {sentence}", file=sys.stderr)
        sys.exit(1)


def _describe_system_error(error: Exception) -> str | None:
    """What the machine refused, in one sentence; None for what is the program's own mistake."""
    if isinstance(error, OSError) and error.strerror:
        where = "A file" if error.filename is None else error.filename
        return (
            f"{where} cannot be read or written ({error.strerror}): check the path, its rights and the disk."
        )
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        return (
            "The memory is not enough: take fewer sentences at once (--batch, tokens), candidates or steps."
        )
    return None


def _version(requested: bool) -> None:
    if requested:
        print(f"noise2text {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
