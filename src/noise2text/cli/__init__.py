"""The command line, one module per command: parse, call, print.

Every file of this folder that defines a command adds it to the app; no list has to be kept. Heavy
packages such as torch are imported only by the command that needs them.
"""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import re
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from noise2text.cli.options import app
from noise2text.cli.usage_errors import UsageError, show_usage_error
from noise2text.core.errors import Problem, Stopped, is_out_of_memory
from noise2text.core.version import __version__

__all__ = ["app", "main"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")  # which adds its command to the app


def main() -> None:
    """Run a command; a user's mistake is one sentence and exit code 1, or 2 for an unreadable one."""
    try:
        _run()
    except SystemExit as end:
        if os.environ.get("WORLD_SIZE", "1") != "1":
            _exit_now(end)
        raise


def _exit_now(end: SystemExit) -> NoReturn:
    """End one of several processes immediately, without shutting down the interpreter.

    The threads of gloo may still own tensors, and abort the process if they free them during the shutdown.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the stream is closed or missing
            stream.flush()
    os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))


def _run() -> None:
    _prepare_streams()
    try:
        try:
            code = app(prog_name="noise2text", standalone_mode=False)
        finally:
            sys.stdout.flush()  # now, while a full disk can still be explained
        sys.exit(code or 0)
    except UsageError as error:
        show_usage_error(error)
        sys.exit(2)
    except Problem as problem:
        print(f"noise2text: {problem}", file=sys.stderr)
        sys.exit(1)
    except Stopped as stopped:
        if os.environ.get("RANK", "0") == "0":  # all processes stop, and one of them says so
            print(f"noise2text: {stopped}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        _drop_standard_output_if_broken()
        sys.exit(1)
    except (OSError, RuntimeError, MemoryError) as error:
        sentence = _describe_system_error(error)
        if sentence is None:
            raise
        _drop_standard_output_if_broken()
        print(f"noise2text: {Problem(sentence)}", file=sys.stderr)  # which escapes what a name may hold
        sys.exit(1)


def _prepare_streams() -> None:
    """Write UTF-8 whatever the terminal's encoding is, and let no file take the place of a closed stream.

    A file that is opened gets the number of a closed standard error, and torch would write warnings into it.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it is closed; print(file=None) would write messages between texts
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # a path may have any bytes


def _drop_standard_output_if_broken() -> None:
    """Drop what is left for standard output, or the interpreter would try again, and complain, at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)


def _describe_system_error(error: Exception) -> str | None:
    """One sentence about a failure of the machine; None for a bug of the program."""
    if isinstance(error, OSError) and error.strerror:
        name = "A file or standard output" if error.filename is None else error.filename
        return (
            f"{name} cannot be read or written ({error.strerror}): check the path, its permissions and the "
            "disk."
        )
    if is_out_of_memory(error):
        return (
            "There is not enough memory: use a smaller batch (--batch, max_tokens), fewer candidates or "
            "fewer steps."
        )
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # of Python before 3.13
        return f"{str(error).removeprefix('Symlink loop from ')} is a link to itself: choose another path."
    if isinstance(error, RuntimeError) and re.search(_LOST_PEER, str(error)):
        return "Another process of this run has ended (see its message): start all again with --resume."
    return None


_LOST_PEER = "Connection closed by peer|Connection reset by peer|Broken pipe"
"""What the collective operations of torch say when another process is gone."""


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
