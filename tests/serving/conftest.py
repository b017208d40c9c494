"""A folder with a small untrained model, and services that run in a thread of the test."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from noise2text.data.tokenizer import Tokenizer
from noise2text.models import Model
from noise2text.models.folder import load
from noise2text.models.requests import GenerationRequest
from noise2text.serving.app import build_app
from noise2text.serving.limits import Limits
from noise2text.serving.server import GracefulServer, listen
from noise2text.serving.service import Service
from noise2text.serving.start import Options, build_service

from ..conftest import save_noisy_model

TEXTS = ["7 april 1957", "monday", "3rd of may 2001", "12-12-12", "", "a", "june, 1880", "9 9 9"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """The folder of a small untrained Difformer, whose weights let the noise decide about the texts."""
    return save_noisy_model(tmp_path_factory.mktemp("served") / "tiny", tokenizer)


@pytest.fixture(scope="session")
def model(folder: Path) -> Model:
    """The model in the folder."""
    return load(folder, device="cpu", precision="float32")


class Gate:
    """A model that generates only while its gate is open, and remembers the batches that came through."""

    def __init__(self, model: Model) -> None:
        self.model, self.opened, self.entered = model, threading.Event(), threading.Semaphore(0)
        self.batches: list[list[str]] = []

    def __enter__(self) -> None:
        """Nothing yet; at the end of the block the gate opens, so that nothing waits for ever."""

    def __exit__(self, *error: object) -> None:
        self.opened.set()

    def generate_together(self, requests: Sequence[GenerationRequest], **options: Any) -> Any:
        self.entered.release()
        assert self.opened.wait(30)
        self.batches.append([text for request in requests for text in request.texts])
        return self.model.generate_together(requests, **options)

    def load(self, folder: object = None) -> Any:
        return self


@pytest.fixture
def gate(model: Model) -> Iterator[Gate]:
    """A closed gate in front of the model; it opens at the end of the test."""
    gate = Gate(model)
    with gate:
        yield gate


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


@contextmanager
def running(service: Service, **options: Any) -> Iterator[tuple[httpx.Client, GracefulServer]]:
    """A client of the service, which runs in a thread, and its server."""
    server = GracefulServer(build_app(service, **options), service.pool)
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        host, port = listener.getsockname()[:2]
        try:
            with httpx.Client(base_url=f"http://{host}:{port}", timeout=30, trust_env=False) as client:
                yield client, server
        finally:
            server.drain()
            thread.join(30)
    assert not thread.is_alive()


def connect(client: httpx.Client) -> socket.socket:
    """A connection to the service of the client, for requests that are sent in pieces or left."""
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=30)


def request_bytes(body: Any, *, path: str = "/v1/generate") -> bytes:
    """The bytes of a POST request with this body."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


Serve = Callable[..., Service]


@pytest.fixture
def make_service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A function that builds a service of the small model; arguments are those of Limits and Options."""
    monkeypatch.delenv("NOISE2TEXT_API_KEYS", raising=False)

    def make(*models: str, gate: Gate | None = None, limits: Limits | None = None, **options: Any) -> Service:
        chosen = Options(**{"device": "cpu", "precision": "float32", **options})
        service = build_service(models or [f"de-en={folder}"], limits or Limits(), chosen)
        if gate is not None:
            service.pool._load_model = gate.load
        return service

    return make
