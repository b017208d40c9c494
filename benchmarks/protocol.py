"""The published DiffuSeq protocol, re-created from our own parts, beside what the same machine can do.

    python benchmarks/protocol.py [--device cuda] [--timed-steps 50] [--size published|small]

*Protocol*: DiffuSeq of 91M parameters, float32 without TF32, a batch of 50 canvases of 128 positions, every
estimate clamped, each step launched operation by operation, nothing kept between steps. *Equal model* has
the same weights, batch and number of steps as `generate` runs them: in the precision that suits the device,
and recorded on a GPU. Both are timed at K and at 2K steps (K is --timed-steps): the difference is K steps,
the rest is done once, and the 2000 steps of a batch are extrapolated linearly. *Difformer* is timed whole:
width 512, 6+6 layers, 15 steps, one candidate of 25 tokens, batches of 256 in a stream of four. Weights are
random: the time does not depend on them.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from noise2text.commands.bench import BATCHES_PER_CALL
from noise2text.commands.bench_tools import make_random_texts, measure_seconds
from noise2text.core.devices import find_device
from noise2text.data.tokenizer import Tokenizer, learn_bpe
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe

STEPS = 2000
HONEST = 50.0  # ms a step on an H200, where the released code takes 45


@dataclass(frozen=True)
class Size:
    """How large the two models and their batches are."""

    vocabulary: int
    words: int  # that the tokenizer is learned from
    diffuseq: dict[str, int]  # what differs from the paper's settings
    batch: int
    difformer: dict[str, int]
    difformer_batch: int
    tokens: int


SIZES = {
    "published": Size(
        vocabulary=30_522,
        words=200_000,
        diffuseq={},
        batch=50,
        difformer={"model_dim": 512, "ffn_dim": 2048, "heads": 8},
        difformer_batch=256,
        tokens=25,
    ),
    "small": Size(
        vocabulary=400,
        words=1_000,
        diffuseq={"model_dim": 64, "ffn_dim": 128, "heads": 2, "layers": 2, "embedding_dim": 16},
        batch=4,
        difformer={"model_dim": 64, "ffn_dim": 128, "heads": 2, "encoder_layers": 1, "decoder_layers": 1},
        difformer_batch=8,
        tokens=10,
    ),
}


@dataclass(frozen=True)
class Cost:
    """What a batch costs: something once, and something a step."""

    batch: int
    once: float  # seconds
    step: float  # seconds

    def rate(self, steps: int) -> float:
        """Sentences a second at so many steps."""
        return self.batch / (self.once + steps * self.step)


def learn_words(size: Size) -> Tokenizer:
    """A tokenizer of made-up words."""
    chance = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ("".join(chance.choices(letters, k=chance.randint(2, 8))) for _ in range(size.words))
    return learn_bpe([" ".join(words)], size=size.vocabulary)


def build(name: str, preset: str, tokenizer: Tokenizer, **changes: Any) -> DiffusionModel:
    """An untrained model of a recipe."""
    torch.manual_seed(0)
    recipe = find_recipe(name)
    model: DiffusionModel = recipe.build(recipe.preset(preset).replace(changes), tokenizer)
    return model.eval()


def cost(model: DiffusionModel, size: Size, timed_steps: int) -> Cost:
    """What a batch costs, from its times at K and at 2K steps."""
    texts = make_random_texts(model, size.batch, size.tokens)

    def seconds(steps: int) -> float:
        call = partial(model.generate, texts, batch=size.batch, steps=steps, noise_beam=1, clamp=True)
        return measure_seconds(call, model.device, repeats=3)

    short, long = seconds(timed_steps), seconds(2 * timed_steps)
    step = (long - short) / timed_steps
    return Cost(size.batch, max(0.0, short - timed_steps * step), step)


def difformer_rate(model: DiffusionModel, size: Size) -> float:
    """Sentences a second at 15 steps and one candidate."""
    count = BATCHES_PER_CALL * size.difformer_batch
    texts = make_random_texts(model, count, size.tokens)
    options: dict[str, Any] = {"steps": 15, "stop_early": 0, "noise_beam": 1, "length": size.tokens}
    call = partial(model.generate, texts, batch=size.difformer_batch, **options)
    return count / measure_seconds(call, model.device, repeats=5)


def announce(device: torch.device, tokenizer: Tokenizer, timed_steps: int) -> None:
    """Print where and what is timed."""
    where = f"{torch.get_num_threads()} CPU threads"
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    print(f"{where}, torch {torch.__version__}, {len(tokenizer):,} tokens, {timed_steps} timed steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--timed-steps", type=int, default=50)
    parser.add_argument("--size", choices=SIZES, default="published")
    arguments = parser.parse_args()
    device, size = find_device(arguments.device), SIZES[arguments.size]
    torch.set_float32_matmul_precision("highest")
    tokenizer = learn_words(size)
    announce(device, tokenizer, arguments.timed_steps)

    published = build("diffuseq", "qqp", tokenizer, **size.diffuseq).move_to(device, "float32")
    published.use_cuda_graphs = False
    weights = sum(parameter.numel() for parameter in published.parameters()) / 1e6
    slow = cost(published, size, arguments.timed_steps)
    what = f"batch {size.batch}, {weights:.1f}M parameters, float32, eager"
    print(f"protocol     {1000 * slow.step:9.2f} ms a step  ({what})")
    print(f"             {slow.rate(STEPS):9.3f} sentences/s at {STEPS} steps, extrapolated")
    if arguments.size == "published" and 1000 * slow.step > HONEST:
        print(f"             above {HONEST:.0f} ms: on an H200 no fair stand-in for the released code")

    equal = build("diffuseq", "qqp", tokenizer, **size.diffuseq).move_to(device, "auto")
    fast = cost(equal, size, arguments.timed_steps)
    rate, ratio = fast.rate(STEPS), fast.rate(STEPS) / slow.rate(STEPS)
    print(f"equal model  {1000 * fast.step:9.2f} ms a step, {rate:.3f} sentences/s: {ratio:.1f} ×")

    difformer = build("difformer", "wmt14-en-de", tokenizer, noise_factor=4.0, **size.difformer)
    rate = difformer_rate(difformer.move_to(device, "auto"), size)
    ratio = rate / slow.rate(STEPS)
    print(f"Difformer    {rate:9.1f} sentences/s, 15 steps, batch {size.difformer_batch}: {ratio:,.0f} ×")


if __name__ == "__main__":
    main()
