"""An exported model with onnxruntime beside the same model with torch, on a CPU, in one run.

    python benchmarks/exported.py [--threads 1] [--width 512] [--layers 6] [--rounds 9]

A Difformer with random weights reads 25 tokens and writes 25: one sentence, one candidate, 10 steps, timed
whole (tokenizing, reading, walking, rounding). The engines take turns in every round; times and ratios are
medians over the rounds. With one thread the processor's time is taken, which other programs disturb less;
else the clock's. The last column counts the texts of 8 sentences that are the same as float32's with torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from noise2text import load
from noise2text.recipes import RECIPES, save
from noise2text.runs.bench import made_up_texts
from noise2text.runs.export import PRECISIONS, export
from noise2text.system import System
from noise2text.text.tokenizer import learn_bpe

TOKENS, TEXTS = 25, 8
HOW: dict[str, Any] = {"steps": 10, "stop_early": 0, "length": TOKENS, "length_beam": 1, "noise_beam": 1}
BASE = "torch, float32"


def made(folder: Path, *, width: int, layers: int) -> Path:
    """A folder of a Difformer with random weights, for made-up words."""
    chance = random.Random(0)
    words = (chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 7)) for _ in range(60_000))
    tokenizer = learn_bpe([" ".join(map("".join, words))], size=10_000)
    recipe = RECIPES["difformer"]
    settings = dataclasses.replace(
        recipe.settings("wmt14-en-de"),
        width=width,
        ffn=4 * width,
        encoder_layers=layers,
        decoder_layers=layers,
        factor=4.0,
    )
    torch.manual_seed(0)
    save(folder, recipe.build(settings, tokenizer), recipe=recipe.name, settings=settings)
    return folder


def engines(folder: Path) -> dict[str, System]:
    """The model with each engine, in each precision."""
    found = {
        f"torch, {precision}": load(folder, device="cpu", precision=precision)
        for precision in ("float32", "bfloat16", "int8")
    }
    for precision in PRECISIONS:
        out = folder.parent / precision
        export(folder, out, precision=precision)
        found[f"onnxruntime, {precision}"] = load(out)
    return found


def timed(systems: dict[str, System], *, rounds: int, threads: int) -> dict[str, list[float]]:
    """The seconds of each engine in each round, after one that is not counted."""
    clock = time.process_time if threads == 1 else time.perf_counter
    (text,) = made_up_texts(systems[BASE], 1, TOKENS)
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds + 1):
        for name, system in systems.items():
            begin = clock()
            system.generate([text], **HOW)
            if number:
                seconds[name].append(clock() - begin)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        systems = engines(made(Path(folder) / "model", width=arguments.width, layers=arguments.layers))
    seconds = timed(systems, rounds=arguments.rounds, threads=arguments.threads)
    texts = made_up_texts(systems[BASE], TEXTS, TOKENS)
    base, expected = seconds[BASE], systems[BASE].generate(texts, **HOW).texts
    print(f"torch {torch.__version__}, {arguments.threads} thread(s), {arguments.rounds} rounds")
    for name, own in seconds.items():
        ratio = statistics.median(mine / other for mine, other in zip(base, own, strict=True))
        same = sum(a == b for a, b in zip(systems[name].generate(texts, **HOW).texts, expected, strict=True))
        time_taken = f"{1000 * statistics.median(own):8.1f} ms {ratio:6.2f} times"
        print(f"{name:<22} {time_taken} {same:>4} of {TEXTS} texts the same")


if __name__ == "__main__":
    main()
