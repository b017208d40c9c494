"""The progress of a run: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from noise2text.core.errors import Problem, abbreviate
from noise2text.training.callbacks import TrainingCallback, TrainingStart

__all__ = [
    "Display",
    "ShowProgress",
    "SilentDisplay",
    "TerminalDisplay",
    "count_progress",
    "require_display",
    "show_count",
    "show_elapsed",
]


class Display(Protocol):
    """Where a run reports its progress."""

    def show_line(self, line: str) -> None:
        """Show one line permanently."""

    def start(self, total: int) -> None:
        """Set the total number of steps."""

    def progress(self, step: int, summary: str) -> None:
        """Show the current step and a summary."""


def require_display(display: Any) -> None:
    """Raise a Problem for what is no display; None, for a silent one, is no mistake."""
    if display is not None and (isinstance(display, type) or not hasattr(display, "show_line")):
        raise Problem(f"train takes a Display as display, not {abbreviate(display)}: leave it out for none.")


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

    def __init__(self, console: Console, bar: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.bar, self.clock = console, bar, clock
        self.total, self.last_shown = 0, clock()
        self.first_progress: tuple[int, float] | None = None  # the first step and its time

    @classmethod
    @contextmanager
    def open(
        cls, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Iterator[TerminalDisplay]:
        """A display on standard error, or on another console, by a clock in seconds."""
        console = console or Console(stderr=True, highlight=False)
        columns = (
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[summary]}"),
        )
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            yield cls(console, progress, clock)

    def show_line(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def start(self, total: int) -> None:
        self.total, self.first_progress = total, None
        for task_id in self.bar.task_ids:
            self.bar.remove_task(task_id)
        self.task = self.bar.add_task("training", total=total, summary="")

    def progress(self, step: int, summary: str) -> None:
        self.bar.update(self.task, completed=step, summary=summary)
        self.first_progress = self.first_progress or (step, self.clock())
        if not self.console.is_terminal and self.clock() - self.last_shown > 10:
            self.last_shown = self.clock()
            self.show_line(f"step {step:,} of {self.total:,}  {summary}{self._time_left(step)}")

    def _time_left(self, step: int) -> str:
        """The estimated time left; empty until it can be estimated."""
        first, started = self.first_progress or (step, self.clock())
        if step == first:
            return ""
        seconds_per_step = (self.clock() - started) / (step - first)
        seconds_left = round(seconds_per_step * (self.total - step))
        # A timedelta has a maximum.
        return f"  {timedelta(seconds=seconds_left)} left" if seconds_left < 1e12 else ""


class ShowProgress(TrainingCallback):
    """Shows a training run on a display: the step, the latest means, and a line per validation."""

    def __init__(self, display: Display) -> None:
        self.display = display

    def on_start(self, start: TrainingStart) -> None:
        self.display.start(start.last_step)

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        hidden = ("gradient", "rate", "tokens_per_second")
        means = "  ".join(f"{name} {value:.3f}" for name, value in values.items() if name not in hidden)
        self.display.progress(step, f"{means}  {values['tokens_per_second']:,.0f} tokens/s")

    def on_validation(self, step: int, scores: Mapping[str, float]) -> None:
        shown = "  ".join(f"{name} {score:.3f}" for name, score in scores.items())
        self.display.show_line(f"step {step:,}: valid {shown}")


@contextmanager
def count_progress(
    unit: str,
    total: int | None = None,
    *,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
    delay: float = 2.0,
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of items that were just finished; shows them and the time left.

    In a terminal it is a live line, which appears after `delay` seconds; elsewhere a line every ten.
    """
    console = console or Console(stderr=True, highlight=False)
    started = last_shown = clock()
    done = 0

    def describe() -> str:
        if total is None:
            return f"{done:,} {unit}"
        seconds = round((clock() - started) / done * (total - done)) if done else None
        left = "" if seconds is None else f"  {timedelta(seconds=seconds)} left"
        return f"{done:,} of {total:,} {unit}{left}"

    columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(describe(), total=total)

    def advance(count: int) -> None:
        nonlocal done, last_shown
        done += count
        bar.update(task, completed=done, description=describe())
        if not console.is_terminal and clock() - last_shown > 10:
            last_shown = clock()
            console.print(describe(), markup=False, soft_wrap=True)

    with _appear_later(bar, delay):
        yield advance


@contextmanager
def _appear_later(line: Progress, delay: float) -> Iterator[None]:
    """Context manager: the live line appears after `delay` seconds, and goes away at the end."""
    appearance = threading.Timer(delay, line.start)
    appearance.start()
    try:
        yield
    finally:
        appearance.cancel()
        appearance.join()  # or it starts the line after its end
        line.stop()


@contextmanager
def show_elapsed(what: str, *, console: Console | None = None, delay: float = 2.0) -> Iterator[None]:
    """Context manager: a live line with the time since its start, where nobody can say how much is left.

    It appears after `delay` seconds in a terminal, goes away at the end, and is nowhere else.
    """
    console = console or Console(stderr=True, highlight=False)
    columns = (SpinnerColumn("line"), TextColumn(what), TimeElapsedColumn())
    line = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    line.add_task(what, total=None)
    with _appear_later(line, delay):
        yield


@contextmanager
def show_count(
    unit: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """A function that shows the number it is called with: live in a terminal, else every ten seconds."""
    console = console or Console(stderr=True, highlight=False)
    last_shown = clock()

    def show_line(count: int) -> None:
        nonlocal last_shown
        if clock() - last_shown > 10:
            last_shown = clock()
            console.print(f"{count:,} {unit}")

    if not console.is_terminal:
        yield show_line
        return
    with console.status("reading") as status:
        yield lambda count: status.update(f"{count:,} {unit}")
