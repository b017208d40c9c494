"""Locks that let several processes share a folder.

An experiment that is started several times trains several models in parallel, one process per model, and
every process ends with the same table. A model is trained by one run at a time, and an output is written by
one command at a time. The locks are those of the operating system (flock), so a killed process releases its
locks. Without flock nothing is checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from noise2text.core.errors import Problem
from noise2text.core.files import explain_write_failures

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock_file", "lock_folder", "lock_open_file", "lock_output", "try_lock"]


@contextmanager
def lock_file(path: Path, *, wait: bool) -> Iterator[bool]:
    """Context manager: whether this process has the lock of the path; with `wait`, it waits for the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        yield try_lock(lock.fileno(), wait=wait)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Context manager: no other run uses the folder; a new folder that stays empty is removed."""
    is_new = not folder.exists()
    with explain_write_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as cleanup:
        if fcntl is not None:
            handle = os.open(folder, os.O_RDONLY)
            cleanup.callback(os.close, handle)
            if not try_lock(handle):
                raise _already_used(folder)
        try:
            yield
        finally:
            if is_new:
                with suppress(OSError):
                    folder.rmdir()  # fails if the folder is not empty


@contextmanager
def lock_output(path: Path) -> Iterator[None]:
    """Context manager: no other command writes the file or folder; its lock, .NAME.lock, lies beside it."""
    lock_path = path.absolute().with_name(f".{path.name}.lock")
    with ExitStack() as cleanup:
        try:
            lock_path.parent.mkdir(parents=True, exist_ok=True)
            lock = cleanup.enter_context(lock_path.open("w"))
        except OSError as error:
            raise Problem(f"{path} cannot be written ({error.strerror}): choose another place.") from error
        lock_open_file(lock.fileno(), lock_path, output=path)
        try:
            yield
        finally:
            lock_path.unlink(missing_ok=True)


def lock_open_file(handle: int, path: Path, *, output: Path) -> None:
    """Lock an open file; a Problem names the output if another process has it or has just removed it."""
    try:
        is_ours = try_lock(handle) and os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        is_ours = False
    if not is_ours:
        raise _already_used(output)


def _already_used(path: Path) -> Problem:
    return Problem(f"Another process is using {path}: wait for it, or choose another place.")


def try_lock(handle: int, *, wait: bool = False) -> bool:
    """Whether this process now has the lock of the open file; closing the file releases it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (OSError, AttributeError):  # this file system has no locks
        pass
    return True
