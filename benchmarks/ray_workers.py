"""What `generate --ray` costs: CPU seconds per sentence by the number of workers, beside one process.

    OMP_NUM_THREADS=1 python benchmarks/ray_workers.py

A worker computes on one core. The CPU seconds are those of all processes: the workers, Ray's own and the
driver. Unlike sentences per second, which are shown, too, they hardly depend on what else the machine does.
What it takes to start (processes, PyTorch, the model) is left out: rows count after the first shard of each
worker.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import noise2text
from noise2text.commands.generate_on_ray import RayOptions, TextRecords, generate_on_ray
from noise2text.commands.generation_job import GenerationJob
from noise2text.commands.ray_cluster import connect_to_ray
from noise2text.core.command_line import parse_numbers

SENTENCES = ("Wo ist der Bahnhof?", "Ich habe zwei Brüder.", "Sie ist heute sehr müde.", "Das Haus ist alt.")
SETTINGS: dict[str, Any] = {"steps": 5, "length_beam": 3, "noise_beam": 1}


@dataclass(frozen=True)
class Usage:
    """What a number of sentences took: seconds of all cores, and seconds."""

    sentences: int
    cpu: float
    wall: float

    def __str__(self) -> str:
        each = 1000 * self.cpu / self.sentences
        return f"{each:.1f} ms of CPU per sentence, {self.sentences / self.wall:.1f} sentences/s"


def measure_alone(sources: list[str]) -> Usage:
    """One process with one thread."""
    torch.set_num_threads(1)
    model = noise2text.load("de-en", device="cpu")
    model.generate(sources[:8], **SETTINGS)
    wall, cpu = time.perf_counter(), time.process_time()
    model.generate(sources, **SETTINGS)
    return Usage(len(sources), time.process_time() - cpu, time.perf_counter() - wall)


def measure_on_ray(sources: list[str], folder: Path, *, workers: int, shard_rows: int) -> Usage:
    """The rows after the first shard of each worker."""
    corpus = folder / "in.jsonl"
    corpus.write_text("".join(json.dumps({"src": text}) + "\n" for text in sources))
    finished: list[tuple[float, float, int]] = []

    @contextmanager
    def record(total: int) -> Iterator[Callable[[int], None]]:
        yield lambda rows: finished.append((time.perf_counter(), cpu_seconds.read(), rows))

    with CpuSeconds() as cpu_seconds, connect_to_ray("local", num_cpus=workers):
        generate_on_ray(
            GenerationJob(Path("de-en"), overrides=SETTINGS, device="cpu"),
            TextRecords(),
            input=str(corpus),
            output=folder / f"{workers}.jsonl",
            options=RayOptions("local", workers, shard_rows),
            show_progress=record,
        )
    (wall, cpu, _), later = finished[2 * workers - 1], finished[2 * workers :]
    return Usage(sum(rows for *_, rows in later), later[-1][1] - cpu, later[-1][0] - wall)


class CpuSeconds:
    """The CPU seconds of this process and its descendants, those that have ended included.

    A thread looks at them twice a second, because what an ended process used is not in /proc any more: Ray
    ends a worker as soon as no shard is left for it.
    """

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, str], int] = {}  # by process id and start time
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CpuSeconds:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def read(self) -> float:
        """The sum until now."""
        parents: dict[int, int] = {}
        ticks: dict[int, tuple[str, int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it may end while it is looked at
                values = stat.read_text().rsplit(")", 1)[1].split()
                parents[int(stat.parent.name)] = int(values[1])
                ticks[int(stat.parent.name)] = values[19], int(values[11]) + int(values[12])
        for process, (start, used) in ticks.items():
            if _is_descendant(process, parents):
                self._ticks[process, start] = used
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self.read()


def _is_descendant(process: int, parents: dict[int, int]) -> bool:
    while process not in (0, os.getpid()):
        process = parents.get(process, 0)
    return process == os.getpid()


def main() -> None:
    """Print a row per number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--sentences", type=int, default=2560)
    parser.add_argument("--shard-rows", type=int, default=64)
    arguments = parser.parse_args()
    sources = [f"{SENTENCES[at % len(SENTENCES)]} {at}" for at in range(arguments.sentences)]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"one process: {measure_alone(sources)}", flush=True)
    for workers in parse_numbers(arguments.workers, "--workers"):
        with tempfile.TemporaryDirectory() as folder:
            used = measure_on_ray(sources, Path(folder), workers=workers, shard_rows=arguments.shard_rows)
        print(f"{workers} workers: {used}, load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
