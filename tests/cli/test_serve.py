"""`noise2text serve` as a process: one command starts it, SIGTERM ends it without losing an answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from typer.testing import CliRunner

from noise2text.cli import app
from noise2text.core.errors import Problem


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves, and its address."""
    command = [sys.executable, "-m", "noise2text", "serve", *options, "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+", line)  # no other machine reaches it
            assert found, line
            yield process, found[0]
        finally:
            process.kill()


@pytest.mark.long
def test_sigterm_under_load_loses_no_accepted_request() -> None:
    with (
        serving("de-en", "--precision", "float32") as (process, address),
        httpx.Client(base_url=address, timeout=60, trust_env=False) as client,
        ThreadPoolExecutor(12) as threads,
    ):

        def ask(number: int) -> int | str:
            body = {"texts": ["Ich habe zwei Brüder."], "steps": 6, "seed": number % 3}
            try:
                answer = client.post("/v1/generate", json=body)
            except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError) as error:
                return type(error).__name__
            if answer.status_code == 200:
                assert answer.json()["texts"] == ["I have two brothers."]
            return answer.status_code

        first = [threads.submit(ask, number) for number in range(12)]
        assert first[0].result() == 200
        metrics = client.get("/metrics").text
        process.send_signal(signal.SIGTERM)
        answers = [each.result() for each in first]
        assert process.wait(60) == 0
        assert process.stderr is not None
        log = process.stderr.read()
    assert "Brüder" not in log
    assert "Traceback" not in log
    assert "noise2text_waiting_texts" in metrics
    assert set(answers) <= {200, 503, "ConnectError"}
    assert answers.count(200) >= 2


def test_a_mistake_is_found_before_the_service_listens() -> None:
    for arguments, sentence in (
        (["nowhere"], "no model folder"),
        (["de-en", "de-en"], "Two models"),
        (["de-en", "--max-batch", "0"], "at least 1"),
        (["de-en", "--rate-limit", "-1"], "at least 0"),
        (["de-en", "--precision", "float8"], "float8"),
        (["de-en", "--port", "99999"], "--port"),
        (["de-en", "--guide", "a=nowhere"], "--guide a=nowhere: there is no classifier in nowhere"),
        (["de-en", "--keys", "nowhere"], "nowhere cannot be read as API keys"),
        (["de-en", "--ray", "--min-replicas", "0"], "--min-replicas must be at least 1"),
        (["de-en", "--ray", "--scale-up-seconds", "0"], "--scale-up-seconds must be more than 0"),
    ):
        result = CliRunner().invoke(app, ["serve", *arguments])
        assert isinstance(result.exception, Problem), result.output
        assert sentence in str(result.exception)


def test_without_the_extra_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("noise2text.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = CliRunner().invoke(app, ["serve", "de-en"])
    assert isinstance(result.exception, Problem)
    assert "noise2text[serve]" in str(result.exception)
