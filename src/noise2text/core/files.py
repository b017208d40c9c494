"""Atomic writes: at every moment a file or folder is either complete or as it was before.

What is being written has a draft's name, NAME.draft beside a file and .NAME.draft beside a folder. It takes
its own name when all of it is on the disk. A failure removes the draft; the draft of a killed process is
overwritten or removed by the next one that writes in its place.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from noise2text.core.errors import Problem

__all__ = [
    "exists",
    "explain_write_failures",
    "flush_folder",
    "flush_to_disk",
    "hash_file",
    "read_limited",
    "require_empty",
    "require_utf8_name",
    "write_atomically",
    "write_files_together",
    "write_folder_atomically",
    "write_text_file",
]


def write_atomically(path: Path, write: Callable[[Path], object], *, writer: str = "") -> None:
    """Let `write` create the file under a temporary name, then rename it into place.

    Processes that may write the same file at the same time, with the same contents, each name their `writer`.
    """
    write_files_together({path: write}, writer=writer)


def write_files_together(writers: Mapping[Path, Callable[[Path], object]], *, writer: str = "") -> None:
    """Write files of one folder; they take their names one after another when all of them are on the disk."""
    drafts = {path: path.with_name(f"{path.name}{writer and f'.{writer}'}.draft") for path in writers}
    try:
        for path, write in writers.items():
            draft = drafts[path]
            with explain_write_failures(path):
                draft.touch()  # with the user's default permissions; safetensors lets only the owner read
                mode = draft.stat().st_mode
                write(draft)
                draft.chmod(mode)
                flush_to_disk(draft)
        for path, draft in drafts.items():
            with explain_write_failures(path):
                os.replace(draft, path)
    except BaseException:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink()
        raise
    for folder in {path.parent for path in writers}:
        flush_folder(folder)


def require_empty(out: Path) -> None:
    """Refuse a folder that is not empty, or a file."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Problem(f"{out} is a file or not empty: choose another folder.")


@contextmanager
def write_folder_atomically(out: Path) -> Iterator[Path]:
    """Context manager: a folder that takes the name `out`, new or empty, on success and is removed otherwise.

    Its caller holds the lock of `out`, so that a draft that is already there belongs to a killed process.
    """
    out = out.resolve()  # replace the target of a link, not the link
    draft = out.with_name(f".{out.name}.draft")
    with explain_write_failures(out):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            yield draft
            for file in draft.rglob("*"):
                if file.is_file():
                    flush_to_disk(file)
            os.replace(draft, out)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        flush_folder(out.parent)


@contextmanager
def explain_write_failures(path: Path) -> Iterator[None]:
    """Context manager: a full disk, missing permissions and the like are a Problem that names the path."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise Problem(
            f"{path} cannot be written ({_reason(error)}): make room, or check its permissions and the disk."
        ) from error


def _reason(error: Exception) -> str:
    """What the system said; safetensors, which is not written in Python, wraps it in words of its own."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    found = re.search(r"([^:()]+) \(os error \d+\)", str(error))
    return found[1].strip() if found else str(error)


def flush_to_disk(file: Path) -> None:
    """Wait until the file's contents are on the disk."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names of the folder's files are on the disk, where the system can do that."""
    with suppress(OSError):  # Windows and some network file systems cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text_file(path: Path, text: str) -> None:
    """Write a text file atomically and create its folders."""
    with explain_write_failures(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8", newline="\n"))


def require_utf8_name(path: Path) -> None:
    """Raise a Problem for a path that is not UTF-8, which safetensors can write but not read."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError as error:
        raise Problem(
            f"{path} is not a name in UTF-8, so that weights cannot be read there: choose another name."
        ) from error


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; False for a name that none can have."""
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or with a null character
        return False


def read_limited(path: Path, limit: int) -> bytes:
    """The contents of a file; a Problem, before it is in memory, if it has more bytes than the limit."""
    with path.open("rb") as file:
        contents = file.read(limit + 1)
    if len(contents) > limit:
        raise Problem(f"{path} is too large: it may have {limit:,} bytes.")
    return contents


def hash_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
