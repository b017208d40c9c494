"""Generation beside Hugging Face's `generate` with a Marian model of the same shape, in one run.

    python benchmarks/decoding.py [--device cuda] [--batches 1,64,256] [--layers 6] [--width 512]

Both models have random weights, the same width, layers, heads and vocabulary, read 25 tokens and write 25.
Ours is timed whole, from text to text (tokenizing, encoding, sampling, rounding, selecting), the peer from
token tensors on. A batch of one is timed alone, larger ones in a stream of four.
"""

from __future__ import annotations

import argparse
import random

import torch

from noise2text.commands.bench import BenchRow, bench, bench_marian, measure_scaling
from noise2text.core.devices import find_device, find_dtype
from noise2text.data.tokenizer import Tokenizer, learn_bpe
from noise2text.models import LengthPredictingModel
from noise2text.models.registry import find_recipe

TOKENS = 25


def make_words(words: int, *, seed: int) -> list[str]:
    """So many made-up words."""
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(chance.choices(letters, k=chance.randint(2, 7))) for _ in range(words)]


def make_sentences(tokenizer: Tokenizer, count: int) -> list[str]:
    """Texts of exactly 25 tokens."""
    found: list[str] = []
    words, start = make_words(60 * count + 1000, seed=1), 0
    while len(found) < count:
        for size in range(1, TOKENS + 1):
            text = " ".join(words[start : start + size])
            (row,) = tokenizer.encode([text])
            if len(row) >= TOKENS:
                found += [text] if len(row) == TOKENS else []
                break
        start += 1
    return found


def build_difformer(tokenizer: Tokenizer, arguments: argparse.Namespace) -> LengthPredictingModel:
    """A Difformer with random weights."""
    recipe = find_recipe("difformer")
    config = recipe.preset("wmt14-en-de").replace(
        model_dim=arguments.width,
        ffn_dim=4 * arguments.width,
        encoder_layers=arguments.layers,
        decoder_layers=arguments.layers,
        noise_factor=4.0,
    )
    device = find_device(arguments.device)
    model: LengthPredictingModel = recipe.build(config, tokenizer)
    return model.move_to(device, arguments.precision).eval()


def show(row: BenchRow) -> None:
    """Print a line of the table."""
    sentences_per_second = f"{1000 * row.seconds:9.2f} ms {row.sentences_per_second:11.1f} sentences/s"
    rest = (
        f"  first call {row.first_call:.2f} s, {row.peak_fraction:.0%} of peak, {row.memory:,.0f} MiB"
        if row.first_call
        else ""
    )
    print(f"batch {row.batch:>4}  {row.label:<26} {sentences_per_second}{rest}")


def numbers(text: str) -> list[int]:
    """The numbers of a comma-separated list."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--peer-precision", default=None, help="float32 or bfloat16; ours without it")
    parser.add_argument("--batches", type=numbers, default=[1, 64, 256])
    parser.add_argument("--steps", type=numbers, default=[2, 15])
    parser.add_argument("--candidates", type=numbers, default=[1, 10])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--scaling", action="store_true", help="how the time grows with each size")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = learn_bpe([" ".join(make_words(60_000, seed=0))], size=10_000)
    model = build_difformer(tokenizer, arguments)
    where = torch.cuda.get_device_name() if model.device.type == "cuda" else "CPU"
    print(f"{where}, torch {torch.__version__}, {next(model.parameters()).dtype}, {len(tokenizer)} tokens")
    shape = {
        "model_dim": arguments.width,
        "ffn_dim": 4 * arguments.width,
        "heads": 8,
        "layers": arguments.layers,
    }
    if not arguments.no_peer:
        wanted = arguments.peer_precision
        dtype = find_dtype(wanted, model.device) if wanted else None
        for row in bench_marian(model, batches=arguments.batches, dtype=dtype, **shape):
            show(row)
    for row in bench(
        model,
        batches=arguments.batches,
        steps=arguments.steps,
        candidates=arguments.candidates,
        length=TOKENS,
        repeats=arguments.repeats,
        texts=make_sentences(tokenizer, 1024 if max(arguments.batches) > 1 else 1),
    ):
        show(row)
    if arguments.scaling:
        print({name: round(power, 2) for name, power in measure_scaling(model).items()})


if __name__ == "__main__":
    main()
