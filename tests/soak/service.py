"""Attack a service until the time is over, and count what it answers.

`noise2text serve` runs as a process of its own with a small model. Thousands of connections are open and
silent; meanwhile clients send tiny and huge requests, slow ones in pieces, half ones, ones whose answer
nobody waits for, and ones that must be refused. Every answer must be that of its request. At the end the
silent connections ask, too, and SIGTERM must end the process with 0.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from noise2text.core.config import apply_overrides
from noise2text.data.tokenizer import learn_characters
from noise2text.models import Model
from noise2text.models.folder import load, save
from noise2text.models.registry import find_recipe

TEXTS = ["7 april 1957", "monday", "3rd of may 2001", "12-12-12", "a", "june, 1880", "9 9 9"]
SEEDS = 4
HUGE = [f"{number} {text}" for number in range(9) for text in TEXTS]
CLIENTS = 24
FEW_FILES = 256
SMALL = {
    **{"model_dim": 16, "ffn_dim": 16, "heads": 2, "embedding_dim": 8, "encoder_layers": 1},
    **{"decoder_layers": 1, "noise_factor": 2.0, "generation.steps": 2, "length": 8},
}


def make_model(folder: Path) -> Model:
    """A small untrained model, saved in the folder."""
    recipe = find_recipe("difformer")
    config = apply_overrides(recipe.preset("tiny"), SMALL, origin="soak")
    torch.manual_seed(0)
    save(folder, recipe.build(config, learn_characters(TEXTS)), recipe="difformer", config=config)
    return load(folder, device="cpu", precision="float32")


def _allow_few_files() -> None:
    """The usual limit of a process, fewer than there are connections; the service must raise it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FEW_FILES, most), most))


@contextmanager
def serve(folder: Path, log: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The port and the process of a service; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "noise2text", "serve", str(folder), "--port", "0", "--device", "cpu"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--precision", "float32"], stderr=errors, preexec_fn=_allow_few_files
        )
    try:
        while not (found := re.search(r"http://[\d.]+:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield int(found[1]), process
    finally:
        process.kill()
        process.wait()


@dataclass
class ServiceAttack:
    """The state of an attack: the port, the right answers, the random numbers and what was counted."""

    port: int
    answers: dict[tuple[str, int], str]
    huge_answers: list[str]
    rng: random.Random
    figures: Counter[str] = field(default_factory=Counter)

    async def attack(self, *, seconds: float, connections: int) -> None:
        """Open silent connections, let the clients attack, then let the silent ones ask."""
        silent = [await self.connect() for _ in range(connections)]
        end = time.monotonic() + seconds
        await asyncio.gather(*(self.attack_until(end) for _ in range(CLIENTS)))
        for start in range(0, connections, 100):
            await asyncio.gather(*(self.ask(*each) for each in silent[start : start + 100]))
        self.figures["silent connections answered at last"] += connections

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def attack_until(self, end: float) -> None:
        """One client: request after request, each on a new connection or on the last one."""
        kinds: list[Callable[..., Awaitable[object]]] = [self.ask] * 12
        kinds += [self.ask_slowly, self.ask_much, self.ask_wrongly, self.send_half, self.leave]
        reader, writer = await self.connect()
        while time.monotonic() < end:
            kind = self.rng.choice(kinds)
            await kind(reader, writer)
            if writer.is_closing() or self.rng.random() < 0.1:
                writer.close()
                reader, writer = await self.connect()
        writer.close()

    async def ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, pause: float = 0
    ) -> None:
        """A tiny request, in one piece or in three."""
        text, seed = self.rng.choice(TEXTS), self.rng.randrange(SEEDS)
        whole = request_bytes({"texts": [text], "seed": seed})
        for piece in (whole[:20], whole[20:-5], whole[-5:]) if pause else (whole,):
            writer.write(piece)
            await asyncio.sleep(pause)
        status, body = await read_answer(reader)
        assert (status, json.loads(body)["texts"]) == (200, [self.answers[text, seed]]), body
        self.figures["requests answered rightly"] += 1

    async def ask_slowly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.ask(reader, writer, pause=0.05)

    async def ask_much(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A request of many texts."""
        writer.write(request_bytes({"texts": HUGE, "seed": 1}))
        status, body = await read_answer(reader)
        assert (status, json.loads(body)["texts"]) == (200, self.huge_answers), body[:300]
        self.figures["huge requests answered rightly"] += 1

    async def ask_wrongly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A request that is refused in a sentence."""
        wrong: Any = self.rng.choice(
            [
                {"texts": []},
                {"texts": ["x" * 5000]},
                {"texts": 7},
                [],
                {"texts": ["a"], "settings": {"steps": -1}},
            ]
        )
        writer.write(request_bytes(wrong))
        status, body = await read_answer(reader)
        assert 400 <= status < 500, (status, body)
        assert b"Traceback" not in body
        self.figures["wrong requests refused"] += 1

    async def send_half(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A part of a request, and the end of the connection."""
        whole = request_bytes({"texts": [TEXTS[0]]})
        writer.write(whole[: self.rng.randrange(1, len(whole))])
        await writer.drain()
        writer.close()
        self.figures["half requests"] += 1

    async def leave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A request whose answer nobody waits for."""
        writer.write(request_bytes({"texts": [TEXTS[0]], "trace": True}))
        await writer.drain()
        writer.close()
        self.figures["requests left"] += 1


def request_bytes(body: Any) -> bytes:
    """A request as HTTP sends it."""
    content = json.dumps(body).encode()
    head = "POST /v1/generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length is not None, head
    return int(head.split()[1]), await reader.readexactly(int(length[1]))


async def _record_memory(pid: int, memory: list[float], seconds: float) -> None:
    """Add the resident memory of a process in MiB at each tenth of the time."""
    for _ in range(10):
        await asyncio.sleep(seconds / 10)
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert found is not None
        memory.append(int(found[1]) / 1024)


def attack_service(
    folder: Path, *, seconds: float, seed: int, connections: int = 2_000
) -> tuple[Counter[str], list[float]]:
    """The figures of an attack, and the memory of the service in MiB at each tenth of it."""
    model, memory = make_model(folder / "model"), list[float]()
    answers = {
        (text, seed): model.generate([text], seed=seed).texts[0] for text in TEXTS for seed in range(SEEDS)
    }
    with serve(folder / "model", folder / "log") as (port, process):
        attack = ServiceAttack(port, answers, model.generate(HUGE, seed=1).texts, random.Random(seed))

        async def attack_and_record() -> None:
            recording = asyncio.create_task(_record_memory(process.pid, memory, seconds))
            await attack.attack(seconds=seconds, connections=connections)
            await recording

        asyncio.run(attack_and_record())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (folder / "log").read_text()[-2000:]
    assert "Traceback" not in (folder / "log").read_text()
    return attack.figures, memory
