"""What reading the source once and packing candidates together gain, against the published habit.

    python benchmarks/generation.py [--width 256] [--sentences 16]

The published samplers run the whole model at every step for every candidate, one noise at a time. Here the
same weights generate the same candidates both ways, in one run, and the ratio of the times is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from noise2text.data.layouts.canvas import Source
from noise2text.data.tokenizer import learn_characters
from noise2text.generation.config import LengthSettings
from noise2text.models import LengthDiffusion
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import Denoiser, Estimate, Held, Level, Memory


class Rereading(Denoiser):
    """Reads the source anew at every step, as the published samplers do."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser, self.space = denoiser, denoiser.space

    def read(self, source: Source) -> Memory:
        self.source = source
        return self.denoiser.read(source)

    def forward(self, z: Tensor, level: Level, memory: Memory, held: Held, guess: Tensor | None) -> Estimate:
        estimate: Estimate = self.denoiser(z, level, self.denoiser.read(self.source), held, guess)
        return estimate


def median_seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    """The median time of the work, after one run that does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sentences", type=int, default=8)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = learn_characters(["abcdefghijklmnopqrstuvwxyz"])
    recipe = find_recipe("difformer")
    settings = dataclasses.replace(
        recipe.settings("iwslt14-de-en"), width=arguments.width, ffn=4 * arguments.width, factor=4.0
    )
    system: LengthDiffusion = recipe.build(settings, tokenizer).eval()
    rows = torch.randint(6, len(tokenizer), (arguments.sentences, 25)).tolist()
    places = list(range(len(rows)))
    together = LengthSettings(length=25, noise_beam=10)

    def packed() -> None:
        system.drafts(rows, together, seed=0, places=places, trace=False)

    def one_by_one() -> None:
        plain = system.denoiser
        system.denoiser = Rereading(plain)
        one = dataclasses.replace(together, noise_beam=1)
        for seed in range(10):
            system.drafts(rows, one, seed=seed, places=places, trace=False)
        system.denoiser = plain

    fast, slow = median_seconds(packed), median_seconds(one_by_one)
    print(f"width {arguments.width}, 6+6 layers, {len(rows)} sentences × 10 candidates × 15 steps, 25 tokens")
    print(f"packed, source read once   {fast:8.3f} s")
    print(f"one noise at a time, reread {slow:7.3f} s")
    print(f"ratio                      {slow / fast:8.2f}")


if __name__ == "__main__":
    main()
