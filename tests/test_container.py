"""The files of the container: the start script and the health check as they are, the rest read and linted."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

CONTAINER = Path(__file__).parents[1] / "container"
BIN = Path(sys.executable).parent


def read_compose(name: str = "compose.yaml") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONTAINER / name).read_text())
    return found


def find_free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


@contextmanager
def started(*options: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The start script as a process."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **variables}
    command = [str(CONTAINER / "start.sh"), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def is_healthy(port: str) -> bool:
    command = [sys.executable, str(CONTAINER / "healthy.py")]
    return subprocess.run(command, env={**os.environ, "NOISE2TEXT_PORT": port}).returncode == 0


@pytest.mark.long
def test_the_start_script_serves_until_sigterm(tmp_path: Path) -> None:
    port, keys = find_free_port(), tmp_path / "keys.txt"
    keys.write_text("secret\n")
    variables = {
        "NOISE2TEXT_MODELS": "de-en german=de-en",
        "NOISE2TEXT_HOST": "127.0.0.1",
        "NOISE2TEXT_PORT": port,
        "NOISE2TEXT_KEYS_FILE": str(keys),
    }
    assert not is_healthy(port)
    with started("--precision", "float32", **variables) as process:
        assert process.stderr is not None
        assert f"Serving de-en, german at http://127.0.0.1:{port}" in process.stderr.readline()
        assert is_healthy(port)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            body = {"texts": ["Ich habe zwei Brüder."], "model": "german", "steps": 6}
            assert client.post("/v1/generate", json=body).status_code == 401
            answer = client.post("/v1/generate", json=body, headers={"Authorization": "Bearer secret"})
            assert answer.json()["texts"] == ["I have two brothers."]
        process.send_signal(signal.SIGTERM)  # reaches the service: the script has become it
        assert process.wait(60) == 0
    assert not is_healthy(port)


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([BIN / "hadolint", CONTAINER / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_without_root_and_has_what_it_copies() -> None:
    text = (CONTAINER / "Dockerfile").read_text().replace("\\\n", " ")
    last_stage = text[text.rindex("\nFROM ") :]
    assert re.findall(r"^USER (.*)$", last_stage, re.M) == ["10001:10001"]
    assert re.search(r'^HEALTHCHECK .*CMD \["healthy.py"\]$', last_stage, re.M)
    assert re.search(r'^ENTRYPOINT \["start.sh"\]$', last_stage, re.M)
    let_through = re.findall(r"^!(.*)$", (CONTAINER / "Dockerfile.dockerignore").read_text(), re.M)
    copied = [name for line in re.findall(r"^COPY (.*)$", text, re.M) for name in line.split()[:-1]]
    files = [name for name in copied if not name.startswith("--")]
    assert sorted(files) == sorted(let_through)
    assert all((CONTAINER.parent / name).exists() for name in files)
    assert all(os.access(CONTAINER / name, os.X_OK) for name in ("start.sh", "healthy.py"))


def test_the_versions_of_torch_are_those_of_the_package() -> None:
    wanted = set(re.findall(r'"(torch[^"]+)"', (CONTAINER.parent / "pyproject.toml").read_text()))
    assert set(re.findall(r'"(torch[^"]+)"', (CONTAINER / "Dockerfile").read_text())) == wanted


def test_the_parts_of_the_compose_file_find_each_other() -> None:
    compose = read_compose()
    services = compose["services"]
    scraped = yaml.safe_load((CONTAINER / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for job in scraped for group in job["static_configs"] for target in group["targets"]]
    proxied = re.findall(r"reverse_proxy (\S+)", (CONTAINER / "Caddyfile").read_text())
    (port,) = re.findall(r"^EXPOSE (\d+)$", (CONTAINER / "Dockerfile").read_text(), re.M)
    assert targets == proxied == [f"noise2text:{port}"]
    assert "ports" not in services["noise2text"]  # only Caddy is reached from outside
    assert services["noise2text"]["read_only"]
    assert services["caddy"]["depends_on"]["noise2text"]["condition"] == "service_healthy"
    mounts = [mount.split(":")[0] for service in services.values() for mount in service.get("volumes", [])]
    own = [mount for mount in mounts if mount.startswith("./") and mount != "./models"]
    assert own
    assert all((CONTAINER / mount).is_file() for mount in own)
    assert {mount for mount in mounts if not mount.startswith(".")} == set(compose["volumes"])
    assert set(read_compose("compose.cuda.yaml")["services"]) <= set(services)
