"""An output file that appears whole: lines go to a draft, which takes the file's name when all are written.

The draft (NAME.draft) stays when a job is stopped, with a note of how it was started (NAME.draft.json), so
that `--resume` can go on with the next line. The note of a finished file lies beside it (.NAME.job.json), so
that `--resume` knows that nothing is left to do. The draft is locked: a file has one writer at a time. What
is no plain file, such as a pipe, is written directly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from noise2text.core.errors import Problem
from noise2text.core.files import explain_write_failures, hash_file, write_atomically
from noise2text.core.json_files import read_json_object
from noise2text.core.locks import try_lock

__all__ = ["OutputLines", "has_finished", "open_output_file", "require_same_job"]


_OUTPUT_HASH = "output"
"""What the note of a finished file calls the SHA-256 of its contents."""


class OutputLines:
    """Lines that are written one by one; `resumed` were there before, `written` is the number of all."""

    def __init__(self, append: Callable[[str], None], resumed: int = 0) -> None:
        self.append, self.resumed, self.written = append, resumed, resumed

    def write(self, line: str) -> None:
        """Append the line; it survives a crash of this process."""
        self.append(line)
        self.written += 1


@contextmanager
def open_output_file(
    path: Path, *, resume: bool = False, started_with: Mapping[str, Any] | None = None
) -> Iterator[OutputLines]:
    """The file, to be written line by line; it has its name when the context ends without an error.

    With `started_with`, the options that decide the lines, finished lines are kept after an error, and
    `resume` goes on after them if the options are the same.
    """
    if path.suffix == ".gz":
        raise Problem(f"{path} is written as plain text, not compressed: leave out the .gz.")
    path = path.resolve()
    if path.exists() and not path.is_file():
        with ExitStack() as stack:
            with _explain(path):
                direct = path.open("wb")
            stack.callback(_close, direct)
            yield OutputLines(partial(_append, direct, path))
        return
    draft, note = (path.with_name(path.name + ending) for ending in (".draft", ".draft.json"))
    finished_note = _name_finished_note(path)
    with ExitStack() as stack:
        file = _open_locked(draft, path)
        stack.callback(_close, file)
        output = OutputLines(partial(_append, file, path), 0 if started_with is None else _count_lines(file))
        if output.resumed:
            _check_resumed(draft, note, output.resumed, started_with or {}, resume=resume)
        else:
            file.truncate(0)
            with explain_write_failures(note):
                _write_note(note, started_with)
        try:
            yield output
        except BaseException:
            if started_with is None or not output.written:
                _remove(draft, note)
            raise
        with explain_write_failures(path):
            os.fsync(file.fileno())
            if path.exists():
                draft.chmod(path.stat().st_mode)
            if started_with is not None:
                _write_note(note, {**started_with, _OUTPUT_HASH: hash_file(draft)})
            _remove(finished_note)  # of the older file, before it goes
            os.replace(draft, path)
            if started_with is not None:
                os.replace(note, finished_note)


def has_finished(path: Path) -> bool:
    """Whether the file is there, and no draft of another one."""
    path = path.resolve()
    return path.is_file() and not path.with_name(f"{path.name}.draft").exists()


def require_same_job(path: Path, started_with: Mapping[str, Any], *, from_pipe: bool) -> None:
    """Raise a Problem unless the finished file has the lines of this job; those of a pipe are not known."""
    again = "leave out --resume to generate it again, or choose another file"
    whole = path.resolve()
    note = _name_finished_note(whole)
    if not note.exists():  # a kill after the file had its name
        note = whole.with_name(f"{whole.name}.draft.json")
    if not note.exists():
        raise Problem(f"{path} is already there, and nothing says how it was made: {again}.")
    before = read_json_object(note, missing=again)
    _require_same(before, started_with, made=f"{path} was made", instead=again)
    if from_pipe:
        raise Problem(f"{path} is finished, but whether a pipe has the same texts is not known: {again}.")
    if before.get(_OUTPUT_HASH) != hash_file(whole):
        raise Problem(f"{path} has been changed since it was made: {again}.")


@contextmanager
def _explain(path: Path) -> Iterator[None]:
    """Context manager: an output that cannot be opened is a Problem."""
    try:
        yield
    except (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise Problem(f"{path} cannot be written: {error.strerror}.") from error


def _open_locked(draft: Path, path: Path) -> BinaryIO:
    """The draft, opened at its end and locked; a Problem if another process has it."""
    while True:
        with _explain(path):
            file = draft.open("a+b")
        if not try_lock(file.fileno()):
            file.close()
            raise Problem(f"Another process is writing {path}: wait for it, or choose another file.")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), draft.stat()):
                return file
        file.close()  # its writer finished and renamed it while we opened it


def _append(file: BinaryIO, path: Path, line: str) -> None:
    with explain_write_failures(path):
        file.write(line.encode() + b"\n")
        file.flush()


def _close(file: BinaryIO) -> None:
    """Close the file, which then tries once more to write what a full disk has refused, and was reported."""
    with suppress(OSError):
        file.close()


def _count_lines(file: BinaryIO) -> int:
    """The number of complete lines; an incomplete last line is cut off."""
    file.seek(0)
    lines, end = 0, 0
    for line in file:
        if line.endswith(b"\n"):
            lines, end = lines + 1, end + len(line)
    file.truncate(end)
    return lines


def _check_resumed(
    draft: Path, note: Path, lines: int, started_with: Mapping[str, Any], *, resume: bool
) -> None:
    """Raise a Problem unless the finished lines of the draft can be continued."""
    if not resume:
        raise Problem(
            f"{draft} has {lines:,} finished texts of a job that was stopped: add --resume to go on, or "
            "delete it to start again."
        )
    before = read_json_object(note, missing=f"delete {draft} to start again")
    instead = "resume with the same options, or delete it to start again"
    _require_same(before, started_with, made=f"{draft} was started", instead=instead)


def _require_same(
    before: Mapping[str, Any], started_with: Mapping[str, Any], *, made: str, instead: str
) -> None:
    """Raise a Problem if a note says other options than those of this job."""
    for name, value in started_with.items():
        if before.get(name) != value:
            raise Problem(f"{made} with {name} = {before.get(name)!r}, not {value!r}: {instead}.")


def _name_finished_note(path: Path) -> Path:
    return path.with_name(f".{path.name}.job.json")


def _write_note(note: Path, started_with: Mapping[str, Any] | None) -> None:
    if started_with is not None:
        text = json.dumps(dict(started_with)) + "\n"
        write_atomically(note, lambda draft: draft.write_text(text, encoding="utf-8"))


def _remove(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)
