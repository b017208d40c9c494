"""Faults that happen to a process while it writes: a kill, Ctrl-C, a full disk, a read-only folder."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["NO_FAULT", "REFUSED", "STOPPED", "Fault", "run_with_fault"]

REFUSED = 3  # the exit code of a process that ended with a Problem
STOPPED = 4  # and of one that was interrupted

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["noise2text.cli", "noise2text.commands.train", "noise2text.report.report"])


@dataclass(frozen=True)
class Fault:
    """What goes wrong in an attempt.

    Fields:
        limit: the size in bytes that no file may exceed, as on a full disk.
        read_only: nothing in the folder of the run can be written.
        kill_at: the number of the write (a file opened or renamed) at which the first process is killed.
        delay: seconds between that write and the kill.
        interrupt_at: the number of the write at which Ctrl-C is pressed.
        changes: settings that differ from those of the run.
    """

    limit: int | None = None
    read_only: bool = False
    kill_at: int = 0
    delay: float = 0.0
    interrupt_at: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)

    def arrange(self, out: Path, rank: int = 0) -> None:
        """Let it happen in this process, which writes in the folder `out`."""
        if self.limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))
        if self.read_only:
            _on_write(out, _refuse_write)
        if self.kill_at and rank == 0:
            counts = itertools.count(1)
            _on_write(out, lambda: self._kill() if next(counts) == self.kill_at else None)
        if self.interrupt_at:
            numbers = itertools.count(1)
            _on_write(out, lambda: _interrupt() if next(numbers) == self.interrupt_at else None)

    def _kill(self) -> None:
        if self.delay:
            threading.Timer(self.delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
        else:
            os.kill(os.getpid(), signal.SIGKILL)


NO_FAULT = Fault()


def _interrupt() -> None:
    raise KeyboardInterrupt


def _refuse_write() -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def _on_write(out: Path, act: Callable[[], None]) -> None:
    """Call `act` before this process opens a file in the folder for writing, or renames one."""
    place = str(out)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event in ("os.rename", "os.mkdir") or (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if writes and str(arguments[0]).startswith(place):
            act()

    sys.addaudithook(hook)


def run_with_fault(work: Callable[..., object], *arguments: Any, out: Path, fault: Fault = NO_FAULT) -> int:
    """The exit code of a process that does the work, which writes in the folder `out`."""
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)  # so that the process finds this file
    process = _CONTEXT.Process(target=_work, args=(work, arguments, out, fault))
    process.start()
    process.join()
    return int(process.exitcode or 0)


def _work(work: Callable[..., object], arguments: tuple[Any, ...], out: Path, fault: Fault) -> None:
    import torch

    from noise2text.cli import _describe_system_error as describe_system_error
    from noise2text.core.errors import Problem, Stopped

    torch.set_num_threads(1)
    fault.arrange(out)
    try:
        work(*arguments)
    except Problem:
        os._exit(REFUSED)
    except OSError as error:  # the command line makes a sentence of it
        os._exit(REFUSED if describe_system_error(error) else 1)
    except (KeyboardInterrupt, Stopped):
        os._exit(STOPPED)
    os._exit(0)
