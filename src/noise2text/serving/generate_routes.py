"""The service's own interface: /v1/generate, /v1/generate/stream and /v1/models."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from noise2text.core.config import describe
from noise2text.core.errors import Problem
from noise2text.serving.result import make_results
from noise2text.serving.schema import (
    ErrorAnswer,
    GenerateAnswer,
    GenerateRequest,
    ModelAnswer,
    SettingAnswer,
    StreamRequest,
)
from noise2text.serving.service import CheckedRequest, Refused, Service
from noise2text.serving.step_stream import StepEvent

__all__ = ["ERRORS", "router"]

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in (
        (400, "the body is not JSON"),
        (401, "no valid API key"),
        (404, "no such model"),
        (413, "the body is too large"),
        (422, "the request or a setting is not valid"),
        (429, "the client asks too often; see Retry-After"),
        (500, "the generation failed"),
        (503, "too many texts wait, or the service is ending; see Retry-After"),
    )
}


def get_service(request: Request) -> Service:
    """The service of the app."""
    service: Service = request.app.state.service
    return service


def authorize(request: Request) -> None:
    """Refuse a request whose key is not valid; it is a bearer token, or X-API-Key."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    key = token if scheme.lower() == "bearer" else request.headers.get("x-api-key")
    get_service(request).authorize(request, key)


router = APIRouter(dependencies=[Depends(authorize)])


@router.post("/v1/generate", responses=ERRORS, summary="Generate a text for each text")
async def generate(request: Request, body: GenerateRequest) -> GenerateAnswer:
    """The chosen texts, and for each its candidates, scores and, with trace, the denoising steps."""
    service = get_service(request)
    generation = service.prepare(
        body.model, body.texts, body.named_settings(), n=body.n, seed=body.seed, trace=body.trace
    )
    service.submit(generation)
    output = await service.wait(generation, request)
    return GenerateAnswer(
        model=generation.model.name,
        seed=body.seed,
        settings=generation.settings,
        texts=output.texts,
        results=make_results(body.texts, output),
    )


@router.post(
    "/v1/generate/stream",
    responses=ERRORS | {200: {"content": {"text/event-stream": {}}}},
    response_class=StreamingResponse,
    summary="Generate one text and send its denoising steps",
)
async def stream(request: Request, body: StreamRequest) -> StreamingResponse:
    """Server-sent events: `start`, a `step` after each denoising step, then the `result`; or an `error`."""
    service = get_service(request)
    generation = service.prepare(
        body.model,
        [body.text],
        body.named_settings(),
        n=body.n,
        seed=body.seed,
        trace=True,
        streamed=True,
    )
    service.submit(generation)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies pass each step on at once
    start = {"model": generation.model.name, "seed": body.seed, "settings": generation.settings}
    events = _stream_events(service, generation, request, start=start)
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _stream_events(
    service: Service, generation: CheckedRequest, request: Request, *, start: dict[str, Any]
) -> AsyncIterator[str]:
    """The events; when the client goes away, whoever iterates closes this iterator and so cancels the job."""
    job, answer = generation.job, asyncio.ensure_future(service.wait(generation, request))
    stream = job.stream
    try:
        yield _format_event("start", start)
        if stream is not None:
            job.future.add_done_callback(lambda future: stream.end())
            async for event in stream:
                yield _format_event("step", dataclasses.asdict(event))
        (result,) = make_results(job.texts, await answer)
        if stream is None:  # a model without denoising steps: its steps are known when the text is
            for number, step in enumerate(result.steps, 1):
                yield _format_event("step", dataclasses.asdict(StepEvent(number, [step])))
        yield _format_event("result", dataclasses.asdict(result))
    except (Problem, Refused) as error:
        yield _format_event("error", {"error": str(error)})
    finally:
        answer.cancel()  # and with it the job, as for a request without a stream


def _format_event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n"


@router.get(
    "/v1/models", responses={401: ERRORS[401], 429: ERRORS[429]}, summary="The models and their settings"
)
async def models(request: Request) -> list[ModelAnswer]:
    """Every model, the default one first, with its generation settings."""
    pool = get_service(request).pool
    loaded = pool.list_loaded()
    return [
        ModelAnswer(
            name=model.name,
            recipe=model.recipe,
            source=model.languages[0] if model.languages else None,
            target=model.languages[1] if model.languages else None,
            loaded=model.name in loaded,
            settings=[
                SettingAnswer(name=name, default=value, help=help)
                for name, value, help in describe(model.generation_config)
            ],
        )
        for model in pool.models.values()
    ]
