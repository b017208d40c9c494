"""Prepare, train and generate on a corpus of ten million pairs, and print the time and the memory of each.

    python benchmarks/scale.py corpus FOLDER --pairs 10000000     # synthetic pairs, about 1.2 GB
    python benchmarks/scale.py prepare FOLDER
    python benchmarks/scale.py train FOLDER --steps 300
    python benchmarks/scale.py generate FOLDER --seconds 120      # killed and resumed twice

Words are drawn from a Zipf distribution over a made-up vocabulary, so that BPE has something to learn. What
is measured is the peak of resident memory of the command's own process; during generation also its course.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 100_000
VOCABULARY = 50_000
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "en", "ir")]
TINY = {
    **{"model_dim": 64, "ffn_dim": 128, "heads": 2, "embedding_dim": 32, "encoder_layers": 1},
    **{"decoder_layers": 1, "max_tokens": 2048, "noise_factor": 2.0, "validation_sentences": 20},
    **{"generation.steps": 2, "length_beam": 1, "noise_beam": 1},
}


def write_corpus(folder: Path, *, pairs: int, seed: int = 0) -> None:
    """Write train.jsonl, valid.jsonl and sources.txt, with pairs that a seed decides."""
    random = np.random.default_rng(seed)
    words = np.array(["".join(random.choice(SYLLABLES, size)) for size in random.integers(1, 5, VOCABULARY)])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "train.jsonl", "w") as train, open(folder / "sources.txt", "w") as sources:
        for start in range(0, pairs, CHUNK):
            count = min(CHUNK, pairs - start)
            sides = [_write_sentences(random, words, count) for _ in range(2)]
            train.writelines(f'{{"src": "{s}", "trg": "{t}"}}\n' for s, t in zip(*sides, strict=True))
            sources.writelines(f"{source}\n" for source in sides[0])
    with open(folder / "train.jsonl") as train, open(folder / "valid.jsonl", "w") as valid:
        valid.writelines(next(train) for _ in range(200))


def _write_sentences(random: np.random.Generator, words: np.ndarray, count: int) -> list[str]:
    """Sentences of 3 to 12 words."""
    lengths = random.integers(3, 13, count)
    drawn = words[np.minimum(random.zipf(1.3, int(lengths.sum())), VOCABULARY) - 1]
    return [" ".join(row) for row in np.split(drawn, np.cumsum(lengths)[:-1])]


def run_measured(command: Sequence[str], *, seconds: float | None = None) -> dict[str, Any]:
    """Run noise2text, until a SIGKILL after `seconds`; its time, and its memory in MiB, peak and course."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "noise2text", *command])
    course, peak = [0.0], 0.0
    while process.poll() is None and (seconds is None or time.monotonic() - started < seconds):
        time.sleep(0.5)
        course.append(_read_memory(process.pid, "RssAnon"))
        peak = max(peak, _read_memory(process.pid, "VmHWM"))
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    tenths = [course[len(course) * tenth // 10] for tenth in range(1, 10)]
    return {
        "exit": process.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "peak": round(peak),  # with the pages of mapped files that happen to be in memory
        "peak of its own": round(max(course)),
        "of its own at each tenth": [round(each) for each in tenths],
    }


def _read_memory(pid: int, name: str) -> float:
    """A figure of a process in MiB: VmHWM, the peak, or RssAnon, what no file backs; 0 when it has ended."""
    try:
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
    except OSError:
        return 0.0
    return int(fields[name].split()[0]) / 1024 if name in fields else 0.0


def _settings() -> list[str]:
    return [f"--set={name}={value}" for name, value in TINY.items()]


def prepare(folder: Path) -> None:
    """Measure the preparation of the whole corpus."""
    files = ["--train", str(folder / "train.jsonl"), "--valid", str(folder / "valid.jsonl")]
    print(json.dumps(run_measured(["prepare", *files, "--out", str(folder / "prepared")])))


def train(folder: Path, *, steps: int) -> None:
    """Measure some steps of training on the prepared corpus."""
    prepared = folder / "prepared"
    files = ["--train", str(prepared / "train"), "--valid", str(prepared / "valid")]
    options = [*_settings(), f"--set=optim.steps={steps}", f"--set=validate_every={steps}", "--device", "cpu"]
    out = str(folder / "run")
    print(json.dumps(run_measured(["train", "difformer", *files, "--out", out, *options])))


def generate(folder: Path, *, seconds: float) -> None:
    """Measure generation from all sources for a while, killed and resumed twice."""
    output = folder / "texts.txt"
    draft = output.with_name(output.name + ".draft")
    for attempt in range(3):
        options = ["--input", str(folder / "sources.txt"), "--output", str(output), "--steps", "1"]
        options += ["--length-beam", "1", "--noise-beam", "1"]
        if attempt:
            options.append("--resume")
        measured = run_measured(["generate", str(folder / "run"), *options], seconds=seconds)
        with open(draft, "rb") as file:
            lines = sum(1 for _ in file)
        print(json.dumps({**measured, "lines": lines}))


def main() -> None:
    """Run one of the four parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["corpus", "prepare", "train", "generate"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    {
        "corpus": lambda: write_corpus(options.folder, pairs=options.pairs),
        "prepare": lambda: prepare(options.folder),
        "train": lambda: train(options.folder, steps=options.steps),
        "generate": lambda: generate(options.folder, seconds=options.seconds),
    }[options.part]()


if __name__ == "__main__":
    main()
