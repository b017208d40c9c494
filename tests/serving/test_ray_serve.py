"""On Ray Serve, replicas come and go with the load, answer like one process, and lose nothing at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from noise2text.models import Model
from noise2text.serving.limits import Limits
from noise2text.serving.ray_serve import RayCluster, describe_deployment

from .conftest import TEXTS, wait_until

HEADERS = {"Authorization": "Bearer secret"}


@contextmanager
def serving_on_ray(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves on a cluster of its own, and its address."""
    command = [sys.executable, "-m", "noise2text", "serve", "--ray", "local", *options, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"Serving on Ray at (http://\S+)", line):
                    break
            assert lines, "the process said nothing"
            assert found, "".join(lines)
            yield process, found[1]
        finally:
            process.terminate()
            process.wait(120)


def count_replicas(session: int) -> int:
    """The processes of replicas whose cluster belongs to this session."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end while it is looked at
            is_replica = (process / "cmdline").read_bytes().startswith(b"ray::ServeReplica")
            found += is_replica and os.getsid(int(process.name)) == session
    return found


class Clients:
    """Ask one request after another, check every answer, and count what becomes of the requests.

    A request that was sent before the service ends is answered. Later ones are refused with 503, or find no
    service.
    """

    def __init__(self, address: str, expected: list[list[str]]) -> None:
        self.address, self.expected = address, expected
        self.counts: Counter[str] = Counter()
        self.is_ending, self.is_over = threading.Event(), threading.Event()

    def keep_asking(self, number: int) -> None:
        with httpx.Client(base_url=self.address, timeout=120, trust_env=False, headers=HEADERS) as client:
            while not self.is_over.is_set():
                number += 1
                is_late = self.is_ending.is_set()
                try:
                    outcome = self.ask(client, number % len(self.expected))
                except httpx.TransportError:
                    outcome = "unreachable"
                assert outcome == "right" or self.is_ending.is_set()
                assert outcome != "unreachable" or is_late
                self.counts[outcome] += 1
                self.is_over.wait(0.05 if is_late else 0)

    def ask(self, client: httpx.Client, seed: int) -> str:
        answer = client.post("/v1/generate", json={"texts": TEXTS, "seed": seed})
        if answer.status_code == 200:
            assert answer.json()["texts"] == self.expected[seed]
            return "right"
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        return "refused"


@contextmanager
def clients_of(address: str, expected: list[list[str]]) -> Iterator[Clients]:
    """Eight clients, which ask until the block ends; an assertion that failed in one of them is raised."""
    clients = Clients(address, expected)
    with ThreadPoolExecutor(8) as threads:
        asking = [threads.submit(clients.keep_asking, 3 * number) for number in range(8)]
        try:
            yield clients
        finally:
            clients.is_over.set()
        for each in asking:
            each.result(60)


def test_a_full_queue_of_ray_says_when_to_try_again() -> None:
    pytest.importorskip("ray")
    limits, cluster = Limits(queue=7), RayCluster(max_replicas=1)
    deployment = describe_deployment(FastAPI, limits=limits, cluster=cluster, resources={"num_cpus": 1})
    assert deployment.max_queued_requests == 7
    assert deployment.backpressure_config.status_code == 503
    assert deployment.backpressure_config.retry_after_s == 1


@pytest.mark.long
def test_replicas_come_and_go_with_the_load_and_end_without_losing_an_answer(
    folder: Path, model: Model, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    keys = tmp_path / "keys.txt"
    keys.write_text("secret\n")
    options = ["--device", "cpu", "--precision", "float32", "--keys", str(keys), "--max-batch", "2"]
    scaling = ["--min-replicas", "1", "--max-replicas", "2", "--scale-up-seconds", "0.5"]
    scaling += ["--scale-down-seconds", "1"]
    expected = [model.generate(TEXTS, seed=seed).texts for seed in range(24)]
    with (
        serving_on_ray(os.path.relpath(folder), *options, *scaling) as (process, address),
        httpx.Client(base_url=address, timeout=120, trust_env=False) as client,
    ):
        assert count_replicas(process.pid) == 1
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/generate", json={"texts": TEXTS}).status_code == 401
        assert client.post("/v1/generate", json={"texts": []}, headers=HEADERS).status_code == 422
        stream = client.post("/v1/generate/stream", json={"text": "monday"}, headers=HEADERS).text
        assert stream.count("event: step") > 1
        with clients_of(address, expected) as clients:
            wait_until(lambda: count_replicas(process.pid) == 2)
            before = clients.counts["right"]
            wait_until(lambda: clients.counts["right"] > before + 30)
        wait_until(lambda: count_replicas(process.pid) == 1)
        with clients_of(address, expected) as clients:
            wait_until(lambda: clients.counts["right"] > 20)
            clients.is_ending.set()
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
        assert clients.counts["refused"] > 0
        assert clients.counts["unreachable"] > 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/healthz", trust_env=False)
