"""Locks that let several processes share a folder.

An experiment that is started several times trains several models at once, one process per model, and every
process ends with the same table. A model is trained by one run at a time. The locks are those of the
operating system (flock), so a killed process releases its own; where a system has none, nothing is checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from noise2text.core.errors import Problem

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock_file", "lock_folder"]


@contextmanager
def lock_file(path: Path, *, wait: bool) -> Iterator[bool]:
    """A context that says whether this process has the lock of the path; with `wait` it waits for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        yield _flock(lock.fileno(), wait=wait)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """A context in which no other run works in the folder; a new folder that stays empty is removed."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with _open_folder(folder) as handle:
        if handle is not None and not _flock(handle, wait=False):
            raise Problem(f"Another process is at work in {folder}: wait for it, or choose another folder.")
        try:
            yield
        finally:
            if is_new:
                with suppress(OSError):
                    folder.rmdir()  # fails if the folder is not empty


@contextmanager
def _open_folder(folder: Path) -> Iterator[int | None]:
    """A file descriptor of the folder that can be locked; None where there are no locks."""
    if fcntl is None:
        yield None
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _flock(handle: int, *, wait: bool) -> bool:
    """Whether this process now has the lock of the open file."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (OSError, AttributeError):  # this file system has no locks
        pass
    return True
