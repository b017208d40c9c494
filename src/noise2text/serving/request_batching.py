"""Batches of requests: what waits together goes through the model together.

    request → bounded queue → batch of requests that share the network → Model.generate_together → answers

Requests share a batch whatever their seeds, steps, candidates, lengths, given words, selection and
preprocessing: only settings of the network must be equal. The noise of a text is a function of its request's
seed and of its index in its request. So an answer is what `Model.generate` returns for the request alone,
whoever else asks.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from noise2text.core.errors import Problem
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models.base import Model
from noise2text.models.output import GenerationOutput, TraceStep
from noise2text.models.requests import GenerationRequest
from noise2text.serving.step_stream import StepStream

__all__ = ["Job", "ModelWorker", "QueueFull", "WorkerClosed", "describe_error"]

logger = logging.getLogger("noise2text.serving")


class QueueFull(Exception):
    """More texts wait than the queue may hold."""


class Abandoned(Exception):
    """Nobody waits for any answer of a batch."""


class WorkerClosed(Exception):
    """The worker takes no more jobs: its model is being let go, or the service is ending."""


@dataclass(frozen=True, eq=False)
class Job:
    """One request: its texts, its settings, and the future of its output.

    Fields:
        texts: the sources.
        settings: the generation settings that the request changes.
        config: the whole generation config; it decides who may share a batch.
        seed: decides the noise, together with the index of a text in `texts`.
        trace: whether the output has the steps.
        n: how many alternatives the output has, at most; the settings say how many candidates are drawn.
        stream: gets each step as it happens, if there is one.
        future: gets the output, or the Problem.
    """

    texts: Sequence[str]
    settings: Mapping[str, Any]
    config: Any
    seed: int = 0
    trace: bool = False
    n: int = 1
    stream: StepStream | None = None
    future: Future[GenerationOutput] = field(default_factory=Future)
    _abandoned: threading.Event = field(default_factory=threading.Event)

    @property
    def shared_settings(self) -> Any:
        """What must be equal for two jobs to share a batch."""
        is_diffusion = isinstance(self.config, DiffusionGenerationConfig)
        return self.config.network_settings() if is_diffusion else self.config

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for the output any more."""
        return self._abandoned.is_set()

    def abandon(self) -> None:
        """Say that nobody waits for the output: a batch of such jobs ends at its next streamed step.

        Canceling the future takes a waiting job out of the queue.
        """
        self._abandoned.set()

    def to_request(self, check: Callable[[], None]) -> GenerationRequest:
        """What the model generates for; `check` is called after each step that is streamed."""
        stream, on_trace_step = self.stream, None
        if stream is not None:
            stream.restart()

            def on_trace_step(steps: Mapping[int, list[TraceStep]]) -> None:
                stream.send(steps)
                check()

        return GenerationRequest(
            self.texts,
            seed=self.seed,
            trace=self.trace,
            n=self.n,
            on_trace_step=on_trace_step,
            overrides=self.settings,
        )


class ModelWorker:
    """A queue and the thread that empties it; the thread loads the model when the first job comes.

    Args:
        load: returns the model.
        max_queue: texts that may wait; the ones that are being generated do not count.
        max_batch: texts that go through the model together; a larger request is a batch of its own.
        on_batch: told the number of texts and of requests of each batch.
    """

    def __init__(
        self,
        load: Callable[[], Model],
        *,
        max_queue: int,
        max_batch: int,
        on_batch: Callable[[int, int], None] = lambda texts, requests: None,
    ) -> None:
        self._load, self._on_batch = load, on_batch
        self.max_queue, self.max_batch = max_queue, max_batch
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.loaded = threading.Event()
        self._thread = threading.Thread(target=self._run, name="noise2text-worker", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        """The number of texts in the queue."""
        with self._changed:
            return sum(len(job.texts) for job in self._waiting)

    @property
    def is_running(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> Future[GenerationOutput]:
        """The future of the job's output; canceling it frees the job's place in the queue."""
        with self._changed:
            if self._closed:
                raise WorkerClosed
            if self._waiting and self.num_waiting + len(job.texts) > self.max_queue:
                raise QueueFull
            self._waiting.append(job)
            self._changed.notify_all()
        job.future.add_done_callback(lambda future: self._forget(job))
        return job.future

    def close(self) -> None:
        """Take no more jobs; what was accepted is finished, and then the model is let go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until a closed worker has finished."""
        self._thread.join()

    def _forget(self, job: Job) -> None:
        """Take a canceled job out of the queue."""
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def _run(self) -> None:
        model: Model | None = None
        while batch := self._next_batch():
            try:
                model = self._load() if model is None else model
            except Exception as error:
                _fail(batch, error)
            else:
                self.loaded.set()
                self._on_batch(sum(len(job.texts) for job in batch), len(batch))
                _answer(model, batch, max_batch=self.max_batch)

    def _next_batch(self) -> list[Job]:
        """The oldest job and the waiting ones that fit it; empty when the worker is closed and done."""
        with self._changed:
            batch: list[Job] = []
            while not batch:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    break
                batch = self._take_fitting()
            return batch

    def _take_fitting(self) -> list[Job]:
        """Take the oldest job and those that fit it out of the queue; canceled ones are dropped."""
        batch: list[Job] = []
        size = 0
        for job in tuple(self._waiting):
            if not batch or (
                size + len(job.texts) <= self.max_batch and job.shared_settings == batch[0].shared_settings
            ):
                self._waiting.remove(job)
                if job.future.set_running_or_notify_cancel():
                    batch.append(job)
                    size += len(job.texts)
        return batch


def _answer(model: Model, batch: Sequence[Job], *, max_batch: int) -> None:
    """Generate for all jobs of a batch together; if that fails, for each of them alone."""

    def check() -> None:
        if all(job.is_abandoned for job in batch):
            raise Abandoned

    try:
        outputs = model.generate_together([job.to_request(check) for job in batch], batch=max_batch)
    except Abandoned as error:
        for job in batch:
            job.future.set_exception(error)
        return
    except Exception as error:
        if len(batch) == 1:
            _fail(batch, error)
        else:
            for job in batch:
                _answer(model, [job], max_batch=max_batch)
        return
    for job, output in zip(batch, outputs, strict=True):
        job.future.set_result(output)


def _fail(batch: Sequence[Job], error: Exception) -> None:
    """Give every job the error; what is not the user's mistake is logged, too."""
    if not isinstance(error, Problem):
        logger.error("a batch failed: %s", describe_error(error))
    for job in batch:
        job.future.set_exception(error)


def describe_error(error: BaseException) -> str:
    """The kind of an error and where it happened, without its message, which may quote a user's text."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"
