"""The denoising steps of a job, sent from the thread of its model to the event loop as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from noise2text.models.output import TraceStep
from noise2text.serving.result import StepResult, make_step

__all__ = ["StepEvent", "StepStream"]


@dataclass(frozen=True)
class StepEvent:
    """A denoising step of one text: its number from 1 on, and the step of each candidate."""

    number: int
    candidates: list[StepResult]


class StepStream:
    """A queue of steps; made in the event loop that reads it.

    A batch that fails is generated again, request by request. The steps come again then, and are the same,
    so those that were sent before are left out.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[StepEvent | None] = asyncio.Queue()
        self._number = self._sent = 0

    def restart(self) -> None:
        """The next step is the first one: generation begins, or begins again."""
        self._number = 0

    def send(self, steps: Mapping[int, list[TraceStep]]) -> None:
        """Send a step of the only text, from any thread."""
        self._number += 1
        if self._number > self._sent:
            self._sent = self._number
            self._put(StepEvent(self._number, [make_step(step) for step in steps[0]]))

    def end(self) -> None:
        """There are no more steps."""
        self._put(None)

    def _put(self, event: StepEvent | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def __aiter__(self) -> AsyncIterator[StepEvent]:
        while (event := await self._events.get()) is not None:
            yield event
