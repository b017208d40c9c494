"""From a request to its answer: check it, queue it, wait for it, and let go of it if its client goes away."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from noise2text.core.config import describe
from noise2text.core.errors import Problem
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.models.output import GenerationOutput
from noise2text.serving.access import ApiKeys, RateLimit
from noise2text.serving.limits import check_texts
from noise2text.serving.model_cache import ModelPool, ServedModel
from noise2text.serving.prometheus import ServiceMetrics
from noise2text.serving.request_batching import Job, QueueFull, WorkerClosed
from noise2text.serving.request_settings import name_candidates, resolve_config
from noise2text.serving.step_stream import StepStream

__all__ = ["CheckedRequest", "Refused", "Service"]

logger = logging.getLogger("noise2text.serving")


class Refused(Exception):
    """A request that is not answered: the HTTP status, the sentence, and after how many seconds to retry."""

    def __init__(self, status: int, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry_after = status, retry_after


@dataclass(frozen=True)
class CheckedRequest:
    """A checked request: its model and its job."""

    model: ServedModel
    job: Job
    guide: str = ""  # the name by which the request calls its classifier

    @property
    def settings(self) -> dict[str, Any]:
        """All generation settings by name, defaults included; a classifier by its name, not its folder."""
        settings = {name: value for name, value, _ in describe(self.job.config)}
        return settings | ({"guide": self.guide} if "guide" in settings else {})


@dataclass
class Service:
    """The models, and what one may ask of them.

    Fields:
        pool: the models.
        guides: the folders of classifiers by the names that requests use.
        keys: the API keys; without any, everybody may ask.
        rate_limit: how often a key, or without keys an address, may ask.
        metrics: what is counted.
        log_texts: whether the texts of users are logged.
    """

    pool: ModelPool
    guides: Mapping[str, str] = field(default_factory=dict)
    keys: ApiKeys = field(default_factory=ApiKeys)
    rate_limit: RateLimit = field(default_factory=RateLimit)
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    log_texts: bool = False

    def authorize(self, request: Request, key: str | None, *, status: int = 401) -> None:
        """Refuse a request without a valid key, and one that comes too soon."""
        client = request.client.host if request.client else ""
        if self.keys.keys:
            number = self.keys.find(key)
            if number is None:
                raise Refused(
                    status, "This service needs a valid API key: send it as Authorization: Bearer KEY."
                )
            client = f"key {number}"
        if seconds := self.rate_limit.seconds_to_wait(client):
            raise Refused(
                429,
                f"A client may ask {self.rate_limit.per_minute} times a minute: try again later.",
                retry_after=seconds,
            )

    def prepare(
        self,
        model_name: str | None,
        texts: Sequence[str],
        settings: Mapping[str, Any],
        *,
        n: int | None = None,
        alternatives: int = 1,
        seed: int = 0,
        trace: bool = False,
        streamed: bool = False,
    ) -> CheckedRequest:
        """The checked request; a Problem says what is wrong with it.

        It asks for `n` alternatives and at least as many candidates; or, without `n`, for `alternatives`
        among the candidates that the settings give. A streamed one gets a `StepStream` if its model has
        denoising steps.
        """
        limits, model = self.pool.limits, self.pool.find(model_name)
        check_texts(texts, limits)
        if n is not None:
            settings = {**settings, **name_candidates(model.generation_config, n, settings)}
        resolved, config = resolve_config(
            settings, model.generation_config, guides=self.guides, limits=limits
        )
        has_steps = isinstance(config, DiffusionGenerationConfig)
        stream = StepStream() if streamed and has_steps else None
        job = Job(texts, resolved, config, seed=seed, trace=trace, n=n or alternatives, stream=stream)
        return CheckedRequest(model, job, guide=str(settings.get("guide") or ""))

    def submit(self, generation: CheckedRequest) -> None:
        """Put a job into the queue of its model, or refuse it."""
        if self.log_texts:
            logger.info("texts %s", json.dumps(generation.job.texts, ensure_ascii=False))
        try:
            self.pool.submit(generation.model.name, generation.job)
        except QueueFull:
            raise Refused(503, "Too many texts are waiting: try again later.", retry_after=1) from None
        except WorkerClosed:
            raise Refused(
                503, "The service is ending: try again later or elsewhere.", retry_after=5
            ) from None

    async def wait(self, generation: CheckedRequest, request: Request) -> GenerationOutput:
        """The output of a submitted job; it is canceled if its client goes away before."""
        answer = asyncio.wrap_future(generation.job.future)
        gone = asyncio.ensure_future(_wait_for_disconnect(request))
        try:
            tasks: set[asyncio.Future[Any]] = {answer, gone}
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Refused(499, "The client went away.")
            return answer.result()
        except (Problem, Refused):
            raise
        except Exception:  # the worker has logged it
            raise Refused(500, "The generation failed; the log of the service says why.") from None
        finally:
            gone.cancel()
            answer.cancel()
            generation.job.abandon()


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has closed the connection; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
