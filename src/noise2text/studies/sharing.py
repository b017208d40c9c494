"""How several processes share a folder: each thing that is made has a lock, and who holds it makes it.

The same command, started several times, works on several models at once, and every process ends with the same
table. A lock is the operating system's (flock), so that one of a killed process is free again.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["held"]


@contextmanager
def held(path: Path, *, wait: bool) -> Iterator[bool]:
    """Whether, within, no other process has what is at the path; with `wait` only once that is so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
