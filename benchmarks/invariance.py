"""How many texts change with the batch size and with the precision, and by how much their scores.

    python benchmarks/invariance.py [MODEL INPUT] [--sentences 500]     (the demo's, without)
    python benchmarks/invariance.py de-en benchmarks/golden_german.txt --precisions int8,float32

In float32 on a CPU none should. On a GPU, and in bfloat16, sums are rounded in another order for another
shape; the share of texts that differ from those of batch 32 is printed.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice

import noise2text
from noise2text.data.corpus import read_sources


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="runs/demo")
    parser.add_argument("input", nargs="?", default="runs/demo/corpus/test.jsonl")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--precisions", default="float32,bfloat16")
    arguments = parser.parse_args()
    texts = list(islice(read_sources(arguments.input), arguments.sentences))
    first: list[str] = []
    for precision in arguments.precisions.split(","):
        model = noise2text.load(arguments.model, precision=precision)
        reference: list[str] = []
        scores: list[list[float]] = []
        for batch in (32, 1, 8, 128):
            start = time.perf_counter()
            output = model.generate(texts, batch=batch)
            made = output.texts
            seconds = time.perf_counter() - start
            reference, first, scores = reference or made, first or made, scores or output.scores
            print(
                f"{precision} on {model.device.type}, batch {batch:>3}: "
                f"{share(made, reference):6.2%} differ from batch 32, "
                f"{share(made, first):6.2%} from {arguments.precisions.split(',')[0]}, "
                f"scores by {largest_difference(output.scores, scores):.1e} at most, "
                f"{len(texts) / seconds:,.0f} sentences/s"
            )


def share(a: list[str], b: list[str]) -> float:
    """The share of places at which two lists differ."""
    return sum(x != y for x, y in zip(a, b, strict=True)) / len(a)


def largest_difference(a: list[list[float]], b: list[list[float]]) -> float:
    """The largest difference between two lists of lists of scores."""
    return max(abs(x - y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True))


if __name__ == "__main__":
    main()
