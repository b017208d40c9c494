"""Greedy and beam search against Hugging Face's `generate` on a Marian model of the same shape, in one run.

    python benchmarks/autoregressive.py [--device cuda] [--precision bfloat16] [--threads 2]

Both models are untrained and have 6 + 6 layers, dimension 512, 8 heads, inner dimension 2048 and 10,000
tokens; both read sources of 25 tokens and write exactly 25. Times are medians, after one run that does not
count. Without transformers it shows our times alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from noise2text.core.devices import find_device, find_dtype
from noise2text.data.tokenizer import learn_characters
from noise2text.generation.decoder import SourceBatch
from noise2text.models import AutoregressiveModel
from noise2text.models.registry import find_recipe

VOCABULARY, LENGTH = 10_000, 25
SHAPE = {"model_dim": 512, "ffn_dim": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6}
Work = Callable[[list[list[int]], int], object]


def measure_seconds(work: Callable[[], object], *, repeats: int, device: torch.device) -> float:
    """The median time of the work, after one run that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def ours(device: torch.device, dtype: torch.dtype) -> Work:
    """Our Transformer's search with so many hypotheses."""
    tokenizer = learn_characters(["".join(chr(0x4E00 + i) for i in range(VOCABULARY - 6))])
    recipe = find_recipe("transformer")
    config = recipe.preset("wmt14-en-de").replace(SHAPE)
    model: AutoregressiveModel = recipe.build(config, tokenizer).to(device, dtype=dtype).eval()

    def work(rows: list[list[int]], beam: int) -> object:
        decoder = model.build_decoder(model.generation_config.replace(beam=beam, length=LENGTH))
        return decoder.decode(SourceBatch(rows, range(len(rows))))

    return work


def theirs(device: torch.device, dtype: torch.dtype) -> Work:
    """Marian's `generate` with so many beams."""
    from transformers import MarianConfig, MarianMTModel

    config: Any = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=SHAPE["model_dim"],
        encoder_layers=SHAPE["encoder_layers"],
        decoder_layers=SHAPE["decoder_layers"],
        encoder_attention_heads=SHAPE["heads"],
        decoder_attention_heads=SHAPE["heads"],
        encoder_ffn_dim=SHAPE["ffn_dim"],
        decoder_ffn_dim=SHAPE["ffn_dim"],
        activation_function="relu",
        max_position_embeddings=128,
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=3,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    model: Any = MarianMTModel(config)
    model = model.to(device, dtype=dtype).eval()
    exactly = {"min_new_tokens": LENGTH + 1, "max_new_tokens": LENGTH + 1, "do_sample": False}

    def work(rows: list[list[int]], beam: int) -> object:
        tokens = torch.tensor(rows, device=device)
        with torch.inference_mode():
            return model.generate(
                tokens, attention_mask=torch.ones_like(tokens), num_beams=beam, **exactly
            ).tolist()

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = find_device(arguments.device)
    dtype = find_dtype(arguments.precision, device)
    torch.manual_seed(0)
    here = ours(device, dtype)
    try:
        there: Work | None = theirs(device, dtype)
    except ImportError:
        print("transformers is not installed: there is nothing to compare with")
        there = None
    print(f"{device}, {dtype}, {arguments.threads} threads: seconds for {LENGTH} tokens a sentence")
    print(f"{'':<24} {'here':>8} {'marian':>8} {'ratio':>6}")
    for sentences in (1, 32):
        rows = torch.randint(6, VOCABULARY, (sentences, LENGTH)).tolist()
        for beam in (1, 5):
            times = [
                measure_seconds(
                    lambda work=work, rows=rows, beam=beam: work(rows, beam),  # type: ignore[misc]
                    repeats=arguments.repeats,
                    device=device,
                )
                for work in (here, there)
                if work is not None
            ]
            shown = f"batch {sentences}, {'greedy' if beam == 1 else f'beam {beam}'}"
            ratio = f"{times[1]:8.3f} {times[1] / times[0]:6.2f}" if len(times) > 1 else ""
            print(f"{shown:<24} {times[0]:8.3f} {ratio}")


if __name__ == "__main__":
    main()
