"""How several processes share a folder: each thing that is made has a lock, and who holds it makes it.

A study's command, started several times, works on several models at once, and every process ends with the
same table. A model is trained by one run at a time. A lock is the operating system's (flock), so that one of
a killed process is free again; a system that has no such locks is trusted.
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
    """Whether, within, no other process has what is at the path; with `wait` only once that is so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        yield _flock(lock.fileno(), wait=wait)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Within, no other run is at work in the folder; one that is made here, for nothing, is removed again."""
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
                    folder.rmdir()  # which fails where there is something


@contextmanager
def _open_folder(folder: Path) -> Iterator[int | None]:
    """A folder as a file that can be locked; none where there are no locks."""
    if fcntl is None:
        yield None
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _flock(handle: int, *, wait: bool) -> bool:
    """Whether the open file is now this process's alone."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (OSError, AttributeError):  # no such locks here
        pass
    return True
