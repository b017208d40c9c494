"""An exported model with onnxruntime beside the same model with torch, on a CPU, in one run.

    python benchmarks/exported.py [--threads 1] [--width 512] [--layers 6] [--rounds 9] [--peer] [--only int8]

A Difformer with random weights reads 25 tokens and writes 25: one sentence, one candidate, 10 steps, timed
whole (tokenizing, reading, walking, rounding). The engines take turns in every round; times and ratios are
medians over the rounds, with the ratios' quartiles. With one thread the processor's time is taken, which
other programs disturb less; else the clock's. The last column counts the texts of 8 sentences that are the
same as float32's with torch. With `--peer` the ratios are to transformers' greedy `generate` with a Marian
model of the same shape in bfloat16, which takes its turns too, from token tensors on.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from noise2text import load
from noise2text.commands.bench_tools import make_random_texts
from noise2text.commands.export import PRECISIONS, export
from noise2text.commands.huggingface_baseline import build_marian, make_marian_call
from noise2text.data.tokenizer import learn_bpe
from noise2text.models import Model
from noise2text.models.folder import save
from noise2text.models.registry import find_recipe

TOKENS, TEXTS = 25, 8
OPTIONS: dict[str, Any] = {"steps": 10, "stop_early": 0, "length": TOKENS, "length_beam": 1, "noise_beam": 1}
BASE, PEER = "torch, float32", "transformers, bfloat16"
PRECISE = ("float32", "bfloat16", "int8")


def made(folder: Path, *, width: int, layers: int) -> Path:
    """A folder of a Difformer with random weights, for made-up words."""
    chance = random.Random(0)
    words = (chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 7)) for _ in range(60_000))
    tokenizer = learn_bpe([" ".join(map("".join, words))], size=10_000)
    recipe = find_recipe("difformer")
    config = recipe.preset("wmt14-en-de").replace(
        model_dim=width,
        ffn_dim=4 * width,
        encoder_layers=layers,
        decoder_layers=layers,
        noise_factor=4.0,
    )
    torch.manual_seed(0)
    save(folder, recipe.build(config, tokenizer), recipe=recipe.name, config=config)
    return folder


def engines(folder: Path, only: str | None) -> dict[str, Model]:
    """The model with each engine, in each precision or in one, beside torch in float32."""
    wanted = [only] if only else PRECISE
    found = {
        f"torch, {precision}": load(folder, device="cpu", precision=precision)
        for precision in dict.fromkeys(("float32", *wanted))
    }
    for precision in (each for each in PRECISIONS if each in wanted):
        out = folder.parent / precision
        export(folder, out, precision=precision)
        found[f"onnxruntime, {precision}"] = load(out)
    return found


def timed(calls: dict[str, Callable[[], object]], *, rounds: int, threads: int) -> dict[str, list[float]]:
    """The seconds of each call in each round, after two that are not counted."""
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 2):
        for name, call in calls.items():
            begin = clock()
            call()
            if number > 1:
                seconds[name].append(clock() - begin)
    return seconds


def same(model: Model, expected: Model) -> str:
    """How many texts of one model are those of the other."""
    texts = make_random_texts(expected, TEXTS, TOKENS)
    pairs = zip(
        model.generate(texts, **OPTIONS).texts, expected.generate(texts, **OPTIONS).texts, strict=True
    )
    return f"{sum(a == b for a, b in pairs):>4} of {TEXTS} texts the same"


def line(name: str, own: list[float], base: list[float]) -> str:
    """A line of the table."""
    ratios = [other / mine for mine, other in zip(own, base, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    took = f"{name:<22} {1000 * statistics.median(own):8.1f} ms"
    return f"{took} {middle:6.2f} times ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peer", action="store_true", help="time transformers, too")
    parser.add_argument("--only", choices=PRECISE, help="time no other precision beside torch's float32")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("quartiles need two rounds or more")
    torch.set_num_threads(arguments.threads)
    width, layers = arguments.width, arguments.layers
    with tempfile.TemporaryDirectory() as folder:
        models = engines(made(Path(folder) / "model", width=width, layers=layers), arguments.only)
    base = models[BASE]
    calls: dict[str, Callable[[], object]] = {
        name: partial(model.generate, make_random_texts(base, 1, TOKENS), **OPTIONS)
        for name, model in models.items()
    }
    if arguments.peer:
        shape = {"model_dim": width, "ffn_dim": 4 * width, "heads": 8, "layers": layers, "length": TOKENS}
        calls[PEER] = make_marian_call(
            build_marian(base, dtype=torch.bfloat16, **shape), 1, length=TOKENS, beams=1
        )
    seconds = timed(calls, rounds=arguments.rounds, threads=arguments.threads)
    spin = os.environ.get("GOMP_SPINCOUNT", "unset")
    print(f"torch {torch.__version__}, {arguments.threads} thread(s), {arguments.rounds} rounds, spin {spin}")
    for name, own in seconds.items():
        note = same(models[name], base) if name in models else ""
        print(line(name, own, seconds[PEER if arguments.peer else BASE]), note)


if __name__ == "__main__":
    main()
