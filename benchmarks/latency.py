"""One sentence at a time, from text to text: a diffusion model, its teacher's beam, and transformers' beam.

    python benchmarks/latency.py MODEL TEACHER INPUT [--sentences 60]
                                 [--way "steps=5 sampling_noise_factor=4"] …

Each `--way` holds generation settings; without one the model's own are timed. Every sentence is generated
once before it is timed, so that its shapes are known. All are compared with transformers' `generate` on a
Marian model of the teacher's shape with random weights, from token tensors, with as many tokens as the
teacher writes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from noise2text.commands.huggingface_baseline import build_marian, make_marian_call
from noise2text.core.command_line import parse_assignments
from noise2text.data.corpus import read_sources
from noise2text.models import Model
from noise2text.models.folder import load, load_config


def measure(calls: Sequence[Callable[[], object]], device: torch.device) -> tuple[float, float]:
    """The median and the ninth decile of the calls' milliseconds, after a round that does not count."""
    times = []
    for call in (*calls, *calls):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1000 * (time.perf_counter() - start))
    own = times[len(calls) :]
    return statistics.median(own), statistics.quantiles(own, n=10)[-1]


def peer_calls(
    teacher: Model, folder: Path, texts: Sequence[str], *, beams: int
) -> list[Callable[[], object]]:
    """Transformers' `generate`, which reads and writes as many tokens a sentence as the teacher writes."""
    _, config = load_config(folder)
    network = config.model
    shape = {"model_dim": network.model_dim, "ffn_dim": network.ffn_dim, "heads": network.heads}
    dtype = next(teacher.parameters()).dtype
    model = build_marian(teacher, layers=network.decoder_layers, length=128, dtype=dtype, **shape)
    written = teacher.tokenizer.encode(teacher.generate(texts, beam=beams).texts)
    return [make_marian_call(model, 1, length=max(2, len(row) + 1), beams=beams) for row in written]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("input")
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--way", action="append", default=[])
    parser.add_argument("--device", default=None)
    arguments = parser.parse_args()
    texts = list(islice(read_sources(arguments.input), arguments.sentences))
    if len(texts) < 2:
        parser.error("a median needs at least two sentences")
    teacher, beam = load(arguments.teacher, device=arguments.device), arguments.beam
    model = load(arguments.model, device=arguments.device)
    rows: dict[str, Sequence[Callable[[], object]]] = {
        f"transformers, beam {beam}": peer_calls(teacher, arguments.teacher, texts, beams=beam),
        f"teacher, beam {beam}": [partial(teacher.generate, [text], beam=beam) for text in texts],
    }
    for way in arguments.way or [""]:
        config: dict[str, Any] = dict(parse_assignments(way.split()))
        rows[way or "its own settings"] = [partial(model.generate, [text], **config) for text in texts]
    first = 0.0
    print(f"{len(texts)} sentences, one at a time, ms: median, ninth decile, how many times as fast")
    for name, calls in rows.items():
        median, slow = measure(calls, model.device)
        first = first or median
        print(f"{median:>8.2f} {slow:>8.2f} {first / median:>6.1f}  {name}", flush=True)


if __name__ == "__main__":
    main()
