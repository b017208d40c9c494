"""What a trained model keeps of its quality as its steps get fewer, with three solvers, as a Markdown table.

    python benchmarks/solvers.py MODEL TEST.jsonl [--steps 20,10,5,2,1] [--sentences 500] [--device cuda]

Ancestral sampling draws fresh noise at every step, DDIM none (eta 0), the multistep solver none, with steps
of the second order. No step is left out at the end. BLEU is of the corpus; exact is the share of texts that
equal a reference; seconds are for all sentences, after a call that does not count. With --days the test set
is one of `noise2text synth days`, where a year has any of its days for an answer: the share of texts that are
a real day of their year takes the place of the exact ones, and the share of different days that of BLEU.
"""

from __future__ import annotations

import argparse
import time
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from noise2text import load
from noise2text.data.corpus import read_references, read_sources
from noise2text.metrics.evaluate import bleu, exact_match
from noise2text.models import DiffusionModel

WAYS: dict[str, dict[str, Any]] = {
    "ancestral": {"eta": 1.0, "solver": "ddim"},
    "DDIM": {"eta": 0.0, "solver": "ddim"},
    "multistep": {"solver": "multistep"},
}


def timed(model: DiffusionModel, texts: list[str], **options: Any) -> tuple[list[str], float]:
    """The texts written, and the seconds that it took."""
    start = time.perf_counter()
    written = model.generate(texts, **options).texts
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return written, time.perf_counter() - start


def measure(
    model: DiffusionModel, texts: list[str], references: list[tuple[str, ...]], **options: Any
) -> tuple[float, float, float]:
    """BLEU, the share of exact texts, and seconds; of days without references, how different and how real."""
    timed(model, texts[: options["batch"]], **options)
    written, seconds = timed(model, texts, **options)
    if not references:
        return *judge_days(written, texts), seconds
    return bleu(written, references).score, exact_match(written, references).score, seconds


def judge_days(written: list[str], years: list[str]) -> tuple[float, float]:
    """The share of different texts, and of texts that are a real day of their year, in per cent."""

    def real(text: str, year: str) -> bool:
        try:
            return date.fromisoformat(text).year == int(year)
        except ValueError:
            return False

    right = sum(map(real, written, years))
    days = [text[5:] for text in written]  # the year is given
    return 100 * len(set(days)) / len(days), 100 * right / len(written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("test")
    parser.add_argument("--steps", default="20,10,5,2,1")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--candidates", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--days", action="store_true")
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="auto")
    arguments = parser.parse_args()
    model = load(arguments.model, device=arguments.device, precision=arguments.precision)
    if not isinstance(model, DiffusionModel):
        parser.error(f"{arguments.model} is not a diffusion model: it has no steps")
    texts = list(islice(read_sources(arguments.test), arguments.sentences))
    references = [] if arguments.days else read_references(arguments.test)[: len(texts)]
    beams = {"noise_beam": arguments.candidates}
    beams |= {"length_beam": 1} if hasattr(model.generation_config, "length_beam") else {}
    where = f"{model.device}, {arguments.precision}"
    print(f"{len(texts)} sentences, {arguments.candidates} candidates, seed {arguments.seed}, {where}\n")
    first, second = ("different", "real") if arguments.days else ("BLEU", "exact")
    print("| K | " + " | ".join(f"{way}: {first} | {second} | s" for way in WAYS) + " |")
    print("|---" * (1 + 3 * len(WAYS)) + "|")
    for steps in map(int, arguments.steps.split(",")):
        cells = [
            measure(
                model,
                texts,
                references,
                seed=arguments.seed,
                batch=arguments.batch,
                steps=steps,
                stop_early=0,
                **beams,
                **way,
            )
            for way in WAYS.values()
        ]
        row = " | ".join(f"{bleu:.1f} | {exact:.1f} % | {seconds:.2f}" for bleu, exact, seconds in cells)
        print(f"| {steps} | {row} |", flush=True)


if __name__ == "__main__":
    main()
