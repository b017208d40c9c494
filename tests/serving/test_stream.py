"""The stream of denoising steps: each is sent when it happens; a client that goes away frees its place."""

from __future__ import annotations

import dataclasses
import gc
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.models.folder import save
from noise2text.models.registry import find_recipe
from noise2text.models.requests import GenerationRequest

from ..conftest import shrunk
from .conftest import TEXTS, Serve, connect, request_bytes, running, wait_until

BODY = {"text": TEXTS[0], "steps": 5, "seed": 3, "settings": {"noise_beam": 3}}


class Stepper:
    """A model that stops after some streamed steps until it is told to go on, and counts the steps."""

    def __init__(self, model: Model, *, stops: Sequence[int] = (2,)) -> None:
        self.model, self.steps = model, 0
        self.may_pass = {step: threading.Event() for step in stops}
        self.may_go_on = self.may_pass[stops[0]]

    def load(self, folder: object) -> Any:
        return self

    def generate_together(self, requests: Sequence[GenerationRequest], **options: Any) -> Any:
        watched = [
            dataclasses.replace(each, on_trace_step=self._stop(each.on_trace_step)) for each in requests
        ]
        return self.model.generate_together(watched, **options)

    def _stop(self, on_trace_step: Any) -> Any:
        def observe(steps: Any) -> None:
            on_trace_step(steps)
            self.steps += 1
            if self.steps in self.may_pass:
                assert self.may_pass[self.steps].wait(30)

        return None if on_trace_step is None else observe


def read_events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def read_two(events: Iterator[tuple[str, Any]]) -> None:
    """Read the start and the first step, so that the generation has begun."""
    assert [next(events)[0], next(events)[0]] == ["start", "step"]


def test_each_step_arrives_before_the_next_one_is_taken(make_service: Serve, model: Model) -> None:
    service, stepper = make_service(), Stepper(model)
    service.pool._load_model = stepper.load
    with running(service) as (client, _), client.stream("POST", "/v1/generate/stream", json=BODY) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = read_events(answer)
        name, start = next(events)
        assert (name, start["model"], start["seed"]) == ("start", "de-en", 3)
        assert (start["settings"]["steps"], start["settings"]["noise_beam"]) == (5, 3)
        first = [next(events), next(events)]
        assert stepper.steps == 2  # the third step is not taken yet
        stepper.may_go_on.set()
        events_of_all = [*first, *events]
    assert [name for name, _ in events_of_all] == ["step"] * 5 + ["result"]
    alone = model.generate([TEXTS[0]], steps=5, seed=3, noise_beam=3, trace=True)
    steps, result = [value for _, value in events_of_all[:-1]], events_of_all[-1][1]
    assert [step["number"] for step in steps] == [1, 2, 3, 4, 5]
    drafts = [[each["text"] for each in step["candidates"]] for step in steps]
    assert list(map(list, zip(*drafts, strict=True))) == alone.drafts[0]
    assert (result["text"], result["chosen"]) == (alone.texts[0], alone.chosen[0])
    assert [step["candidates"][result["chosen"]] for step in steps] == result["steps"]


def test_a_stream_that_is_left_ends_its_batch_and_frees_its_place(
    make_service: Serve, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    service, stepper = make_service(), Stepper(model)
    service.pool._load_model = stepper.load
    with running(service) as (client, _):
        with client.stream("POST", "/v1/generate/stream", json=BODY | {"steps": 150}) as answer:
            read_two(read_events(answer))
        text = 'noise2text_requests_total{route="/v1/generate/stream"'
        wait_until(lambda: text in client.get("/metrics").text)  # the service has noticed
        stepper.may_go_on.set()
        answer = client.post("/v1/generate", json={"texts": ["a"]})
        assert answer.json()["texts"] == model.generate(["a"]).texts
    assert stepper.steps <= 2  # of 150: the batch was given up
    gc.collect()  # asyncio complains of an error that nobody has read when it is deleted
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def test_a_batch_that_streams_and_others_have_left_ends(make_service: Serve, model: Model) -> None:
    service, stepper = make_service(), Stepper(model, stops=(2, 7))
    service.pool._load_model = stepper.load
    with running(service) as (client, _), client.stream("POST", "/v1/generate/stream", json=BODY) as first:
        events_of_first = read_events(first)
        read_two(events_of_first)  # five steps, the second of which waits, so that the next two share a batch
        with connect(client) as plain:
            plain.sendall(request_bytes({"texts": ["gone"], "steps": 150}))
            with client.stream("POST", "/v1/generate/stream", json=BODY | {"steps": 150}):
                wait_until(lambda: service.pool.num_waiting() == {"de-en": 2})
                stepper.may_go_on.set()
                wait_until(lambda: stepper.steps == 7)
        text = 'noise2text_requests_total{route="/v1/generate%s",status="%d"} %d.0'
        left = [text % ("/stream", 200, 2), text % ("", 499, 1)]
        wait_until(lambda: all(each in client.get("/metrics").text for each in left))
        stepper.may_pass[7].set()
        answer = client.post("/v1/generate", json={"texts": ["a"]})
        assert answer.json()["texts"] == model.generate(["a"]).texts
    assert stepper.steps == 7


def test_a_stream_that_is_left_does_not_end_the_others(make_service: Serve, model: Model) -> None:
    service, stepper = make_service(), Stepper(model)
    service.pool._load_model = stepper.load
    with (
        running(service) as (client, _),
        ThreadPoolExecutor(1) as threads,
        client.stream("POST", "/v1/generate/stream", json=BODY) as first,
    ):
        events_of_first = read_events(first)  # kept: an iterator that is dropped closes the connection
        read_two(events_of_first)  # it stops after its second step, and the next two wait together
        stays = threads.submit(client.post, "/v1/generate/stream", json=BODY | {"seed": 4})
        wait_until(lambda: service.pool.num_waiting() == {"de-en": 1})
        with client.stream("POST", "/v1/generate/stream", json=BODY | {"seed": 5}):
            wait_until(lambda: service.pool.num_waiting() == {"de-en": 2})
        wait_until(lambda: service.pool.num_waiting() == {"de-en": 1})
        stepper.may_go_on.set()
        events = list(read_events(stays.result()))
    assert events[-1][1]["text"] == model.generate([TEXTS[0]], steps=5, seed=4, noise_beam=3).texts[0]


def test_a_stream_that_is_left_while_it_runs_does_not_end_the_others(
    make_service: Serve, model: Model
) -> None:
    service, stepper = make_service(), Stepper(model, stops=(2, 7))
    service.pool._load_model = stepper.load
    with (
        running(service) as (client, _),
        ThreadPoolExecutor(1) as threads,
        client.stream("POST", "/v1/generate/stream", json=BODY) as first,
    ):
        events_of_first = read_events(first)
        read_two(
            events_of_first
        )  # of its five steps; the seventh is the first one of a batch of the next two
        stays = threads.submit(client.post, "/v1/generate/stream", json=BODY | {"seed": 4})
        wait_until(lambda: service.pool.num_waiting() == {"de-en": 1})
        with client.stream("POST", "/v1/generate/stream", json=BODY | {"seed": 5}):
            wait_until(lambda: service.pool.num_waiting() == {"de-en": 2})
            stepper.may_go_on.set()
            wait_until(lambda: stepper.steps == 7)
        left = 'noise2text_requests_total{route="/v1/generate/stream",status="200"} 2.0'
        wait_until(lambda: left in client.get("/metrics").text)
        stepper.may_pass[7].set()
        events = list(read_events(stays.result()))
    assert events[-1][1]["text"] == model.generate([TEXTS[0]], steps=5, seed=4, noise_beam=3).texts[0]


def test_a_batch_that_is_generated_again_sends_no_step_twice(make_service: Serve, model: Model) -> None:
    class FailsTogether(Stepper):
        """Two requests together fail after the third step."""

        failures = 0

        def _stop(self, on_trace_step: Any) -> Any:
            observe = super()._stop(on_trace_step)

            def fail_later(steps: Any) -> None:
                observe(steps)
                if self.together and self.steps >= self.before + 3:
                    self.failures += 1
                    raise KeyError

            return fail_later

        def generate_together(self, requests: Sequence[GenerationRequest], **options: Any) -> Any:
            self.together, self.before = len(requests) > 1, self.steps
            return super().generate_together(requests, **options)

    service, stepper = make_service(), FailsTogether(model)
    service.pool._load_model = stepper.load
    with (
        running(service) as (client, _),
        ThreadPoolExecutor(3) as threads,
        client.stream("POST", "/v1/generate/stream", json=BODY) as first,
    ):
        events_of_first = read_events(first)
        read_two(events_of_first)
        jobs = [
            threads.submit(client.post, "/v1/generate/stream", json=BODY | {"seed": seed}) for seed in (4, 5)
        ]
        wait_until(lambda: service.pool.num_waiting() == {"de-en": 2})
        stepper.may_go_on.set()
        answers = [list(read_events(job.result())) for job in jobs]
    assert stepper.failures == 1
    for seed, events in zip((4, 5), answers, strict=True):
        assert [name for name, _ in events] == ["start"] + ["step"] * 5 + ["result"]
        assert [value["number"] for _, value in events[1:-1]] == [1, 2, 3, 4, 5]
        alone = model.generate([TEXTS[0]], steps=5, seed=seed, noise_beam=3)
        assert events[-1][1]["text"] == alone.texts[0]


def test_a_model_without_denoising_steps_sends_its_steps_at_the_end(
    make_service: Serve, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    recipe = find_recipe("transformer")
    config = shrunk(recipe.preset("tiny"))
    save(tmp_path / "tf", recipe.build(config, tokenizer), recipe="transformer", config=config)
    with running(make_service(f"tf={tmp_path / 'tf'}")) as (client, _):
        events = list(read_events(client.post("/v1/generate/stream", json={"text": "7 mai", "length": 4})))
    assert [name for name, _ in events] == ["start"] + ["step"] * 5 + ["result"]
    assert events[-2][1]["candidates"][0]["text"] == events[-1][1]["text"]


def test_a_problem_in_a_stream_is_an_event(make_service: Serve) -> None:
    with running(make_service()) as (client, _):
        answer = client.post("/v1/generate/stream", json={"text": "x", "length": 17})
    assert answer.text.startswith("event: start\ndata: ")
    assert answer.text.count("event: ") == 2
    assert "event: error\ndata: " in answer.text
    assert "at most 16" in answer.text
