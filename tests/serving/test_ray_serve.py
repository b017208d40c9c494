"""On Ray Serve, the replicas give the answers that one process gives, and a signal ends them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from noise2text.models import Model

from .conftest import TEXTS


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


@pytest.mark.long
def test_replicas_answer_like_one_process(folder: Path, model: Model, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    keys = tmp_path / "keys.txt"
    keys.write_text("secret\n")
    options = ["--precision", "float32", "--min-replicas", "2", "--max-replicas", "2", "--keys", str(keys)]
    with (
        serving_on_ray(os.path.relpath(folder), "--device", "cpu", *options) as (process, address),
        httpx.Client(base_url=address, timeout=120, trust_env=False) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        headers = {"Authorization": "Bearer secret"}

        def ask(seed: int) -> list[str]:
            answer = client.post("/v1/generate", json={"texts": TEXTS, "seed": seed}, headers=headers)
            assert answer.status_code == 200, answer.text
            texts: list[str] = answer.json()["texts"]
            return texts

        answers = list(threads.map(ask, range(24)))
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/generate", json={"texts": TEXTS}).status_code == 401
        assert client.post("/v1/generate", json={"texts": []}, headers=headers).status_code == 422
        stream = client.post("/v1/generate/stream", json={"text": "monday"}, headers=headers).text
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    assert answers == [model.generate(TEXTS, seed=seed).texts for seed in range(24)]
    assert stream.count("event:") > 1
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/healthz", trust_env=False)
