"""Signals: stop a long run at the end of a step, so that it can be resumed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["defer_signals"]


@contextmanager
def defer_signals() -> Iterator[Callable[[], bool]]:
    """Context manager: Ctrl-C and SIGTERM only request a stop; a second one stops immediately.

    Its value is a function that says whether a stop was requested.
    """
    received: list[int] = []

    def on_signal(signal_number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signal_number)

    try:
        previous_handlers = {
            signal_number: signal.signal(signal_number, on_signal)
            for signal_number in (signal.SIGINT, signal.SIGTERM)
        }
    except ValueError:  # only the main thread may handle signals
        yield lambda: False
        return
    try:
        yield lambda: bool(received)
    finally:
        for signal_number, handler in previous_handlers.items():
            signal.signal(signal_number, handler)
