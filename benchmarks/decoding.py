"""Generation beside Hugging Face's `generate` with a Marian model of the same shape, in one run.

    python benchmarks/decoding.py [--device cuda] [--batches 1,64,256] [--layers 6] [--width 512]

Both models have random weights, the same width, layers, heads and vocabulary, read 25 tokens and write 25.
Ours is timed whole: tokenizing, reading, walking, rounding, choosing; the peer from token tensors on. A batch
of one is timed alone, larger ones in a stream of four.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from noise2text.hardware import find_device, find_dtype
from noise2text.recipes import RECIPES
from noise2text.system import LengthDiffusion
from noise2text.text.tokenizer import Tokenizer, learn_bpe

TOKENS = 25


def median_seconds(work: Callable[[], object], *, repeats: int = 9) -> float:
    """The median time of the work, after two runs that do not count."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def made_up(words: int, *, seed: int) -> list[str]:
    """So many made-up words."""
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(chance.choices(letters, k=chance.randint(2, 7))) for _ in range(words)]


def sentences(tokenizer: Tokenizer, count: int) -> list[str]:
    """Texts of exactly 25 tokens."""
    found: list[str] = []
    words, start = made_up(60 * count + 1000, seed=1), 0
    while len(found) < count:
        for size in range(1, TOKENS + 1):
            text = " ".join(words[start : start + size])
            (row,) = tokenizer.encode([text])
            if len(row) >= TOKENS:
                found += [text] if len(row) == TOKENS else []
                break
        start += 1
    return found


def ours(tokenizer: Tokenizer, arguments: argparse.Namespace) -> LengthDiffusion:
    """A Difformer with random weights."""
    recipe = RECIPES["difformer"]
    settings = dataclasses.replace(
        recipe.settings("wmt14-en-de"),
        width=arguments.width,
        ffn=4 * arguments.width,
        encoder_layers=arguments.layers,
        decoder_layers=arguments.layers,
        factor=4.0,
    )
    device = find_device(arguments.device)
    system: LengthDiffusion = recipe.build(settings, tokenizer)
    return system.to(device, dtype=find_dtype(arguments.precision, device)).eval()


def marian(arguments: argparse.Namespace, vocabulary: int) -> Any:
    """A Marian model of the same shape with random weights."""
    from transformers import MarianConfig, MarianMTModel

    shape = {"layers": arguments.layers, "ffn_dim": 4 * arguments.width, "attention_heads": 8}
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=arguments.width,
        max_position_embeddings=128,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in shape.items()},
    )
    device = find_device(arguments.device)
    model: Any = MarianMTModel(config)
    return model.to(device, dtype=find_dtype(arguments.precision, device)).eval()


def peer_seconds(model: Any, batch: int, beams: int) -> float:
    """The time of `generate` for a batch."""
    tokens = torch.randint(2, model.config.vocab_size, (batch, TOKENS), device=model.device)
    mask = torch.ones_like(tokens)

    @torch.inference_mode()
    def work() -> None:
        model.generate(
            input_ids=tokens,
            attention_mask=mask,
            num_beams=beams,
            do_sample=False,
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
        )

    return median_seconds(work, repeats=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--batches", default="1,64,256")
    parser.add_argument("--settings", default="1x2,1x15,10x15", help="candidates × steps")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--eager", action="store_true", help="time the walk without graphs, too")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = learn_bpe([" ".join(made_up(60_000, seed=0))], size=10_000)
    system = ours(tokenizer, arguments)
    peer = None if arguments.no_peer else marian(arguments, len(tokenizer))
    where = torch.cuda.get_device_name() if system.device.type == "cuda" else "CPU"
    print(f"{where}, torch {torch.__version__}, {next(system.parameters()).dtype}, {len(tokenizer)} tokens")
    for batch in map(int, arguments.batches.split(",")):
        stream = 1 if batch == 1 else 4
        texts = sentences(tokenizer, batch * stream)
        for name, beams in (("greedy", 1), ("beam 5", 5)) if peer else ():
            show(batch, f"generate, {name}", peer_seconds(peer, batch, beams))  # its batches do not overlap
        for setting in arguments.settings.split(","):
            candidates, steps = map(int, setting.split("x"))
            how: dict[str, Any] = {"length": TOKENS, "noise_beam": candidates}
            how |= {"steps": steps, "stop_early": 0, "batch": batch}
            begin = time.perf_counter()
            system.generate(texts, **how)
            first = time.perf_counter() - begin
            seconds = median_seconds(partial(system.generate, texts, **how)) / stream
            show(batch, f"ours, {candidates} candidates, {steps} steps", seconds, first)


def show(batch: int, what: str, seconds: float, first: float | None = None) -> None:
    """Print a line of the table."""
    rate = f"{1000 * seconds:9.2f} ms {batch / seconds:11.1f} sentences/s"
    print(f"batch {batch:>4}  {what:<32} {rate}", "" if first is None else f" first call {first:.2f} s")


if __name__ == "__main__":
    main()
