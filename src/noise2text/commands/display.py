"""The progress of a run: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["Display", "SilentDisplay", "TerminalDisplay", "count_progress"]


class Display(Protocol):
    """Where a run reports its progress."""

    def show_line(self, line: str) -> None:
        """Show one line permanently."""

    def start(self, total: int) -> None:
        """Set the total number of steps."""

    def progress(self, step: int, summary: str) -> None:
        """Show the current step and a summary."""


class SilentDisplay:
    """Shows nothing."""

    def show_line(self, line: str) -> None:
        pass

    def start(self, total: int) -> None:
        pass

    def progress(self, step: int, summary: str) -> None:
        pass


class TerminalDisplay:
    """A progress bar with the latest numbers; without a terminal, a line every ten seconds."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self.console, self.bar = console, bar
        self.total, self.last_shown = 0, time.monotonic()
        self.first_progress: tuple[int, float] | None = None  # the first step and its time

    @classmethod
    @contextmanager
    def open(cls, console: Console | None = None) -> Iterator[TerminalDisplay]:
        """A display on standard error, or on another console."""
        console = console or Console(stderr=True, highlight=False)
        columns = (
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[summary]}"),
        )
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            yield cls(console, progress)

    def show_line(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def start(self, total: int) -> None:
        self.total, self.first_progress = total, None
        for task_id in self.bar.task_ids:
            self.bar.remove_task(task_id)
        self.task = self.bar.add_task("training", total=total, summary="")

    def progress(self, step: int, summary: str) -> None:
        self.bar.update(self.task, completed=step, summary=summary)
        self.first_progress = self.first_progress or (step, time.monotonic())
        if not self.console.is_terminal and time.monotonic() - self.last_shown > 10:
            self.last_shown = time.monotonic()
            self.show_line(f"step {step:,} of {self.total:,}  {summary}{self._time_left(step)}")

    def _time_left(self, step: int) -> str:
        """The estimated time left; empty until it can be estimated."""
        first, started = self.first_progress or (step, time.monotonic())
        if step == first:
            return ""
        seconds_per_step = (time.monotonic() - started) / (step - first)
        seconds_left = round(seconds_per_step * (self.total - step))
        # A timedelta has a maximum.
        return f"  {timedelta(seconds=seconds_left)} left" if seconds_left < 1e12 else ""


@contextmanager
def count_progress(unit: str) -> Iterator[Callable[[], None]]:
    """A function to call once per finished item; shows their number unless standard output is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.completed:,.0f} " + unit), TimeElapsedColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal or sys.stdout.isatty()
    ) as progress:
        task = progress.add_task(unit, total=None)
        yield lambda: progress.advance(task)
