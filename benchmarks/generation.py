"""How much faster it is to encode the source once and to sample all candidates together.

    python benchmarks/generation.py [--width 256] [--sentences 16]

The released samplers run the whole model at every step for every candidate, one noise at a time. Here the
same weights generate the same candidates both ways, in one run, and the ratio of the times is printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from noise2text.data.layouts.base import Source
from noise2text.data.tokenizer import learn_characters
from noise2text.generation.config import LengthPredictingGenerationConfig
from noise2text.generation.decoder import SourceBatch
from noise2text.models import LengthPredictingModel
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel


class EncodingEveryStep(Denoiser):
    """Encodes the source anew at every step, as the released samplers do."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.denoiser, self.embedding = denoiser, denoiser.embedding

    def encode(self, source: Source) -> EncoderOutput:
        self.source = source
        return self.denoiser.encode(source)

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        estimate: Estimate = self.denoiser(
            z, level, self.denoiser.encode(self.source), constraint, self_condition
        )
        return estimate


def measure_seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
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
    config = recipe.preset("iwslt14-de-en").replace(
        model_dim=arguments.width, ffn_dim=4 * arguments.width, noise_factor=4.0
    )
    model: LengthPredictingModel = recipe.build(config, tokenizer).eval()
    rows = torch.randint(6, len(tokenizer), (arguments.sentences, 25)).tolist()
    batch = SourceBatch(rows, range(len(rows)))
    together = LengthPredictingGenerationConfig(length=25, noise_beam=10)

    def packed() -> None:
        model.build_decoder(together).decode(batch)

    def one_by_one() -> None:
        plain = model.denoiser
        model.denoiser = EncodingEveryStep(plain)
        decoder = model.build_decoder(together.replace(noise_beam=1))
        for seed in range(10):
            decoder.decode(SourceBatch(rows, range(len(rows)), seed))
        model.denoiser = plain

    fast, slow = measure_seconds(packed), measure_seconds(one_by_one)
    print(f"width {arguments.width}, 6+6 layers, {len(rows)} sentences × 10 candidates × 15 steps, 25 tokens")
    print(f"together, encoded once     {fast:8.3f} s")
    print(f"one by one, at every step   {slow:7.3f} s")
    print(f"ratio                      {slow / fast:8.2f}")


if __name__ == "__main__":
    main()
