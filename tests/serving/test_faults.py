"""Slow clients, many clients, huge requests, failing ones, and a signal under load: nobody else is hurt."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from noise2text.models import Model
from noise2text.models.requests import GenerationRequest
from noise2text.serving.limits import Limits

from .conftest import TEXTS, Serve, connect, request_bytes, running, wait_until


def ask(client: httpx.Client, text: str, **body: Any) -> str:
    answer = client.post("/v1/generate", json={"texts": [text], **body})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["texts"][0])


def test_half_sent_requests_hold_up_nobody_and_are_never_generated(make_service: Serve, model: Model) -> None:
    service, whole = make_service(), request_bytes({"texts": ["half"]})
    with running(service) as (client, _), ExitStack() as stack:
        for cut in (1, 20, whole.index(b"\r\n\r\n") + 4, len(whole) - 1):
            for _ in range(10):
                half = stack.enter_context(connect(client))
                half.sendall(whole[:cut])
        assert ask(client, TEXTS[0]) == model.generate([TEXTS[0]]).texts[0]
        half.sendall(whole[-1:])  # the rest may come later
        assert half.recv(1 << 16).startswith(b"HTTP/1.1 200")
        stack.close()
        assert ask(client, TEXTS[1]) == model.generate([TEXTS[1]]).texts[0]
        batches = re.search(r"batch_texts_sum\S* (\S+)", client.get("/metrics").text)
        assert batches is not None
        assert float(batches[1]) == 3


def test_clients_that_do_not_read_hold_up_nobody(make_service: Serve, model: Model) -> None:
    """Their answers are larger than what the system keeps for a client that does not read."""
    body = {"texts": ["7 april 1957"] * 8, "trace": True, "steps": 12, "n": 16}
    with running(make_service()) as (client, _), ExitStack() as stack:
        slow = [stack.enter_context(connect(client)) for _ in range(4)]
        for each in slow:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(request_bytes(body))
        for text in TEXTS:
            assert ask(client, text, seed=3) == model.generate([text], seed=3).texts[0]
        assert slow[0].recv(1 << 10).startswith(b"HTTP/1.1 200")  # the answer is still there


def test_many_connections_are_answered(make_service: Serve, model: Model) -> None:
    expected = {text: model.generate([text]).texts[0] for text in TEXTS}
    with running(make_service()) as (client, _), ExitStack() as stack:
        open_ones = [stack.enter_context(connect(client)) for _ in range(300)]
        for number, each in enumerate(open_ones):
            each.sendall(request_bytes({"texts": [TEXTS[number % len(TEXTS)]]}))
        for number, each in enumerate(open_ones):
            with each.makefile("rb") as answer:
                assert answer.readline().startswith(b"HTTP/1.1 200")
                lines = iter(answer.readline, b"\r\n")
                length = next(
                    int(line.split()[1]) for line in lines if line.lower().startswith(b"content-length")
                )
                list(iter(answer.readline, b"\r\n"))
                text = TEXTS[number % len(TEXTS)]
                assert json.loads(answer.read(length))["texts"] == [expected[text]]


def test_huge_and_tiny_requests_are_answered_side_by_side(make_service: Serve, model: Model) -> None:
    limits = Limits(texts=64, candidates=8, steps=20, batch=8)
    huge = [f"{number} {text}" for number in range(7) for text in TEXTS][:50]
    with running(make_service(limits=limits)) as (client, _), ThreadPoolExecutor(12) as threads:
        large = [
            threads.submit(client.post, "/v1/generate", json={"texts": huge, "seed": i}) for i in range(2)
        ]
        small = [threads.submit(ask, client, TEXTS[i % 8], seed=i) for i in range(10)]
        too_large = client.post("/v1/generate", json={"texts": huge * 2})
        assert (too_large.status_code, "1 to 64 texts" in too_large.text) == (422, True)
        for seed, answer in enumerate(large):
            assert answer.result().json()["texts"] == model.generate(huge, seed=seed).texts
        for seed, text in enumerate(small):
            assert text.result() == model.generate([TEXTS[seed % 8]], seed=seed).texts[0]


def test_a_request_on_which_the_model_fails_leaves_the_others_untouched(
    make_service: Serve, model: Model
) -> None:
    class Fragile:
        def generate_together(self, requests: list[GenerationRequest], **options: Any) -> Any:
            if any("boom" in request.texts for request in requests):
                raise MemoryError
            return model.generate_together(requests, **options)

    service = make_service()
    service.pool._load_model = lambda folder: Fragile()  # type: ignore[assignment, return-value]
    with running(service) as (client, _), ThreadPoolExecutor(24) as threads:
        texts = [TEXTS[i % 4] if i % 3 else "boom" for i in range(24)]
        answers = [
            threads.submit(client.post, "/v1/generate", json={"texts": [text], "seed": i})
            for i, text in enumerate(texts)
        ]
        for seed, (text, answer) in enumerate(zip(texts, answers, strict=True)):
            if text == "boom":
                assert answer.result().status_code == 500
            else:
                assert answer.result().json()["texts"] == model.generate([text], seed=seed).texts


@pytest.mark.long
def test_sigterm_under_load_finishes_what_was_accepted(folder: Path, model: Model, tmp_path: Path) -> None:
    """A real process: every request is answered rightly, refused with 503, or not accepted."""
    log = tmp_path / "log"
    command = [sys.executable, "-m", "noise2text", "serve", str(folder), "--port", "0", "--device", "cpu"]
    with log.open("w") as errors:
        process = subprocess.Popen([*command, "--precision", "float32"], stderr=errors)
    try:
        wait_until(lambda: "http://" in log.read_text() or process.poll() is not None)
        found = re.search(r"http://\S+", log.read_text())
        assert found is not None, log.read_text()
        outcomes: Counter[str] = Counter()
        expected = {text: model.generate([text]).texts for text in TEXTS}
        is_asked_to_end = threading.Event()

        def keep_asking(number: int) -> None:
            with httpx.Client(base_url=found[0], timeout=30, trust_env=False) as client:
                for text in TEXTS * 1000:
                    try:
                        answer = client.post("/v1/generate", json={"texts": [text]})
                    except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
                        assert is_asked_to_end.is_set()  # the service was closing its connections
                        if process.poll() is not None:
                            return
                        continue
                    if answer.status_code == 200:
                        assert answer.json()["texts"] == expected[text]
                        outcomes["right"] += 1
                    else:
                        assert (answer.status_code, is_asked_to_end.is_set()) == (503, True)
                        outcomes["refused"] += 1

        with ThreadPoolExecutor(16) as threads:
            workers = [threads.submit(keep_asking, number) for number in range(16)]
            wait_until(lambda: outcomes["right"] > 50)
            is_asked_to_end.set()
            process.send_signal(signal.SIGTERM)
            for worker in workers:
                worker.result(60)
        assert process.wait(60) == 0
        assert log.read_text().count("/v1/generate 200") == outcomes["right"]  # none was lost on its way
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()
