"""How many texts change with the batch size, threads, processes, order, the service and the precision.

    python benchmarks/determinism.py [MODEL INPUT] [--sentences 500]     (the demo's, without)

On a CPU none should within one precision. On a GPU, and in bfloat16, sums are rounded in another order for
another shape. The share of texts that differ from those of batch 32 is printed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import torch

import noise2text
from noise2text.data.corpus import read_sources

PER_REQUEST = 64  # as many texts as a request may have
Ways = dict[str, Callable[[], list[str]]]


def main() -> None:
    """Parse the options, and print a line per way of generating the same texts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="runs/demo")
    parser.add_argument("input", nargs="?", default="runs/demo/corpus/test.jsonl")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--precisions", default="float32,int8,bfloat16")
    arguments = parser.parse_args()
    precisions = arguments.precisions.split(",")
    texts = list(islice(read_sources(arguments.input), arguments.sentences))
    first: list[str] = []
    for precision in precisions:
        model = noise2text.load(arguments.model, precision=precision)
        reference: list[str] = []
        for way, generate in list_ways(model, arguments.model, precision, texts).items():
            start = time.perf_counter()
            made = generate()
            seconds = time.perf_counter() - start
            reference, first = reference or made, first or made
            print(
                f"{precision} on {model.device.type}, {way:24}: "
                f"{share(made, reference):6.2%} differ from batch 32, "
                f"{share(made, first):6.2%} from {precisions[0]}, "
                f"{len(texts) / seconds:,.0f} sentences/s",
                flush=True,
            )


def list_ways(model: noise2text.Model, folder: str, precision: str, texts: list[str]) -> Ways:
    """Ways to generate the same texts, by name; the first is the usual one."""
    ways: Ways = {
        f"batch {batch}": partial(_generate, model, texts, batch=batch) for batch in (32, 1, 8, 128)
    }
    ways["the reverse order"] = lambda: _generate(model, texts[::-1], indices=list(range(len(texts)))[::-1])[
        ::-1
    ]
    ways["four threads at once"] = lambda: _in_parts(
        ThreadPoolExecutor(4), partial(_generate, model), texts, 4
    )
    if model.device.type == "cpu":
        ways |= {f"{threads} threads": partial(_with_threads, model, texts, threads) for threads in (1, 2)}
        work = partial(_load_and_generate, folder, precision)
        spawn = multiprocessing.get_context("spawn")
        ways["two new processes"] = lambda: _in_parts(ProcessPoolExecutor(2, spawn), work, texts, 2)
    ways["the service"] = partial(_ask_service, folder, precision, texts)
    return ways


def _generate(model: noise2text.Model, texts: Sequence[str], **options: Any) -> list[str]:
    return model.generate(texts, **options).texts


def _with_threads(model: noise2text.Model, texts: Sequence[str], threads: int) -> list[str]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _generate(model, texts)
    finally:
        torch.set_num_threads(before)


def _load_and_generate(folder: str, precision: str, texts: Sequence[str], **options: Any) -> list[str]:
    return _generate(noise2text.load(folder, precision=precision), texts, **options)


def _in_parts(pool: Any, work: Callable[..., list[str]], texts: list[str], parts: int) -> list[str]:
    """The texts of several parts at once, each text with its own index."""
    size = -(-len(texts) // parts)
    with pool:
        jobs = [
            pool.submit(work, texts[at : at + size], indices=range(at, min(at + size, len(texts))))
            for at in range(0, len(texts), size)
        ]
        return [text for job in jobs for text in job.result()]


def _ask_service(folder: str, precision: str, texts: Sequence[str]) -> list[str]:
    """The first texts, as many as fit into one request, by a service."""
    command = [sys.executable, "-m", "noise2text", "serve", folder, "--port", "0", "--precision", precision]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr is not None
        address = next(found[0] for line in service.stderr if (found := re.search(r"http://\S+", line)))
        body = json.dumps({"texts": texts[:PER_REQUEST]}).encode()
        head = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{address}/v1/generate", body, head)) as answer:
            return list(json.load(answer)["texts"])
    finally:
        service.kill()
        service.wait()


def share(a: Sequence[str], b: Sequence[str]) -> float:
    """The share of places at which two lists differ; of a shorter list, as far as it goes."""
    return sum(x != y for x, y in zip(a, b, strict=False)) / min(len(a), len(b))


if __name__ == "__main__":
    main()
