"""What the stopping rule saves and what it costs: steps, processor time and BLEU, as a Markdown table.

    python benchmarks/stopping.py MODEL PAIRS.jsonl [--sure 1,0.99,0.95,0.9,0.5,0] [--batch 1]

Steps are passes of a candidate through the network, the mean over all candidates: a finished one leaves the
network. A pass that scores the finished texts counts, too. The same texts are those that all steps give.
Processor time is relative to the first row; other options of `generate` follow --set.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice
from typing import Any

import torch

from noise2text import load
from noise2text.core.command_line import parse_assignments
from noise2text.data.corpus import read_references, read_sources
from noise2text.metrics.evaluate import bleu, exact_match
from noise2text.models import Model


def timed(model: Model, texts: list[str], **options: Any) -> tuple[list[str], float]:
    """The texts, and the processor time that they took."""
    start = time.process_time()
    return model.generate(texts, **options).texts, time.process_time() - start


def count_steps(model: Any, texts: list[str], **options: Any) -> float:
    """The mean number of steps of a candidate in the network."""
    rows: list[int] = []
    hook = model.denoiser.register_forward_pre_hook(lambda module, inputs: rows.append(len(inputs[0])))
    output = model.generate(texts, **options)
    hook.remove()
    return sum(rows) / sum(map(len, output.candidates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("pairs")
    parser.add_argument("--sure", default="1,0.99,0.95,0.9,0.5,0")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="assignments")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = load(given.model, device="cpu", precision=given.precision)
    texts = list(islice(read_sources(given.pairs), given.sentences))
    references = list(islice(read_references(given.pairs), given.sentences))
    options: dict[str, Any] = {"batch": given.batch, **parse_assignments(given.assignments)}
    print("| stop_when_sure | steps | processor time | BLEU | exact match | same texts |")
    print("|---|---|---|---|---|---|")
    whole: tuple[list[str], float] | None = None
    timed(model, texts[:5], **options)  # does not count
    for sure in map(float, given.sure.split(",")):
        written, seconds = timed(model, texts, stop_when_sure=sure, **options)
        steps = count_steps(model, texts, stop_when_sure=sure, **options)
        whole = whole or (written, seconds)
        same = sum(a == b for a, b in zip(written, whole[0], strict=True)) / len(texts)
        scores = bleu(written, references).score, exact_match(written, references).score
        print(
            f"| {sure:g} | {steps:.2f} | {seconds / whole[1]:.2f} | {scores[0]:.2f} | {scores[1]:.1f} % "
            f"| {100 * same:.1f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
