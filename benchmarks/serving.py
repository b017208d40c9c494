"""The service under load, beside direct generation in the same run: throughput, latency, and a long run.

    pip install aiohttp
    OMP_NUM_THREADS=1 python benchmarks/serving.py MODEL INPUT [--seconds 20] [--requests 100000]

`noise2text serve MODEL` runs as a process of its own; aiohttp is the client. Every request has one text of
INPUT, which has one per line, and one of a few seeds, so that the right answer is known:
it is what `Model.generate` returns directly. Three parts:

    throughput   slices of direct batches and of the service in turn; all clients ask again at once
    latency      requests at random moments (Poisson) at 50 % and at 90 % of the service's throughput
    long run     this many requests of two steps, with different candidates, lengths and given words; counts
                 answers that are lost or not those of their request, and reads the memory at each tenth

Other programs on the machine disturb the times; the ratio within a run is less disturbed than the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import aiohttp

from noise2text.models import Model
from noise2text.models.folder import load

say = partial(print, flush=True)
SEEDS = 8
BATCH = 32
FAST: dict[str, Any] = {"steps": 2, "length_beam": 1, "noise_beam": 1}
VARIANTS = (FAST, FAST | {"noise_beam": 2}, FAST | {"prefix": "1"}, FAST | {"length": 9, "select": "score"})
"""The settings of the long run, whose subject is the service, not the network."""


@dataclass(frozen=True)
class Question:
    """A request of one text, and the text that answers it."""

    text: str
    seed: int
    settings: dict[str, Any]
    answer: str

    @property
    def body(self) -> dict[str, Any]:
        return {"texts": [self.text], "seed": self.seed, "settings": self.settings}

    def judge(self, value: dict[str, Any]) -> str:
        """Whether the answer is that of this request."""
        same = (value["seed"], value["results"][0]["source"]) == (self.seed, self.text)
        return "right" if same and value["texts"] == [self.answer] else "wrong"


def make_questions(model: Model, texts: Sequence[str], variants: Sequence[dict[str, Any]]) -> list[Question]:
    """Every text with every seed and every variant of the settings, in random order."""
    questions = []
    for settings in variants:
        for seed in range(SEEDS):
            first = [0] * len(texts)  # the index of a text that is alone in its request
            answers = model.generate(texts, seed=seed, indices=first, batch=BATCH, **settings).texts
            questions += [
                Question(text, seed, settings, answer) for text, answer in zip(texts, answers, strict=True)
            ]
    random.Random(0).shuffle(questions)
    return questions


@contextmanager
def serve(model: Path) -> Iterator[tuple[str, int]]:
    """The address and the process id of a service."""
    command = [sys.executable, "-m", "noise2text", "serve", str(model), "--port", "0", "--device", "cpu"]
    command += ["--precision", "float32", "--max-batch", str(BATCH)]
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen(command, stderr=log)
        try:
            while not (found := re.search(r"http://\S+", Path(log.name).read_text())):
                if process.poll() is not None:
                    sys.exit(Path(log.name).read_text())
                time.sleep(0.1)
            yield found[0], process.pid
        finally:
            process.terminate()
            process.wait(60)


def resident_mebibytes(pid: int) -> float:
    """The memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


class Client:
    """Asks a service, and counts what becomes of the requests."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []

    async def ask(self, question: Question) -> None:
        start = time.perf_counter()
        try:
            async with self.session.post("/v1/generate", json=question.body) as answer:
                value = await answer.json()
                result = question.judge(value) if answer.status == 200 else f"status {answer.status}"
        except aiohttp.ClientError:
            result = "lost"
        self.counts[result] += 1
        self.seconds.append(time.perf_counter() - start)

    async def ask_all(self, questions: Iterator[Question], clients: int) -> float:
        """The seconds that so many clients take, each of which asks again as soon as it has an answer."""

        async def one() -> None:
            for question in questions:
                await self.ask(question)

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        return time.perf_counter() - start

    async def ask_at_random(self, questions: Iterator[Question], rate: float, seconds: float) -> None:
        """Ask at moments of a Poisson process, whether or not the answers before have come."""
        rng, tasks, start, due = random.Random(1), [], time.perf_counter(), 0.0
        while due < seconds:
            due += rng.expovariate(rate)
            await asyncio.sleep(max(0.0, start + due - time.perf_counter()))
            tasks.append(asyncio.create_task(self.ask(next(questions))))
        await asyncio.gather(*tasks)


def for_seconds(questions: Iterator[Question], seconds: float) -> Iterator[Question]:
    """Questions until the time is over."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        yield next(questions)


def generate_directly(model: Model, questions: Iterator[Question], seconds: float) -> float:
    """Texts per second of `Model.generate` in full batches."""
    done, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        texts = [next(questions).text for _ in range(BATCH)]
        model.generate(texts, batch=BATCH)
        done += BATCH
    return done / (time.perf_counter() - start)


async def measure_throughput(
    session: aiohttp.ClientSession, model: Model, questions: Sequence[Question], arguments: argparse.Namespace
) -> float:
    """Print texts per second directly and by the service, in four slices of each; returns the service's."""
    endless, direct, served = cycle(questions), [], []
    slice_seconds = arguments.seconds / 4
    for _ in range(4):
        direct.append(generate_directly(model, endless, slice_seconds))
        client = Client(session)
        seconds = await client.ask_all(for_seconds(endless, slice_seconds), arguments.clients)
        served.append(sum(client.counts.values()) / seconds)
        say(
            f"  direct {direct[-1]:.1f}, service {served[-1]:.1f} texts/s, {dict(client.counts)}",
            flush=True,
        )
    alone, mean = statistics.mean(direct), statistics.mean(served)
    say(f"throughput: direct {alone:.1f} texts/s, service {mean:.1f} texts/s: {mean / alone:.0%}")
    return mean


async def measure_latency(
    session: aiohttp.ClientSession, questions: Sequence[Question], rate: float, arguments: argparse.Namespace
) -> None:
    """Print the median and the 99th percentile of the time to an answer at two loads."""
    for load_share in (0.5, 0.9):
        client = Client(session)
        await client.ask_at_random(cycle(questions), load_share * rate, arguments.seconds)
        centiles = statistics.quantiles(client.seconds, n=100)
        p50, p99 = (1000 * centiles[number - 1] for number in (50, 99))
        say(
            f"latency at {load_share:.0%}: p50 {p50:.0f} ms, p99 {p99:.0f} ms, {dict(client.counts)}",
            flush=True,
        )


async def run_long(
    session: aiohttp.ClientSession, pid: int, questions: Sequence[Question], arguments: argparse.Namespace
) -> None:
    """Print what became of many requests, and the memory of the service meanwhile."""
    client, total, memory = Client(session), arguments.requests, []
    endless, numbers = cycle(questions), count(1)

    def counted() -> Iterator[Question]:
        while (number := next(numbers)) <= total:
            if number % max(1, total // 10) == 0:
                memory.append(resident_mebibytes(pid))
                say(f"  {number:,} requests, {memory[-1]:.0f} MiB, {dict(client.counts)}")
            yield next(endless)

    # One generator for all clients: each takes the next question.
    seconds = await client.ask_all(counted(), arguments.clients)
    shown = ", ".join(f"{value:.0f}" for value in memory)
    say(f"long run: {total:,} requests in {seconds:.0f} s ({total / seconds:.0f}/s), {dict(client.counts)}")
    say(f"memory at each tenth: {shown} MiB")


async def measure(
    address: str, pid: int, model: Model, texts: Sequence[str], arguments: argparse.Namespace
) -> None:
    """All parts of the benchmark."""
    plain = make_questions(model, texts, [{}])
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(address, timeout=timeout, connector=connector) as session:
        await Client(session).ask_all(iter(plain[: 4 * BATCH]), arguments.clients)  # warm up
        if arguments.seconds:
            rate = await measure_throughput(session, model, plain, arguments)
            await measure_latency(session, plain, rate, arguments)
        if arguments.requests:
            await run_long(session, pid, make_questions(model, texts, VARIANTS), arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description="The service under load, beside direct generation.")
    parser.add_argument("model", type=Path)
    parser.add_argument("input", type=Path)
    parser.add_argument("--texts", type=int, default=64, help="different texts")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement; 0 leaves them out")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=0, help="of the long run")
    arguments = parser.parse_args()
    load_average = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    say(f"{os.cpu_count()} cores, load average {load_average}, {arguments.clients} clients")
    model = load(arguments.model, device="cpu", precision="float32")
    lines = arguments.input.read_text(encoding="utf-8").splitlines()
    texts = [line for line in lines if line.strip()][: arguments.texts]
    with serve(arguments.model) as (address, pid):
        asyncio.run(measure(address, pid, model, texts, arguments))


if __name__ == "__main__":
    main()
