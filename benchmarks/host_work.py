"""Measure what the host does for a sentence besides the network: texts, tokens, candidates, choice.

    python benchmarks/host_work.py INPUT.txt [--model de-en] [--sentences 128] [--repeats 7]

The model generates once. What it decoded then takes the network's place, so that only the work around it is
left. Printed is the CPU time per sentence, the smallest of the repeats, with the model's own preprocessing
and with none. To compare with an earlier commit, run this file in turns with PYTHONPATH on its `src`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import noise2text
from noise2text.models.base import Model
from noise2text.models.base import run_stages as run_network

RUN_STAGES = "noise2text.models.base.run_stages"


def measure(model: Model, texts: Sequence[str], *, repeats: int, **settings: Any) -> float:
    """CPU time per sentence in µs, without the network."""
    decoded: list[list[Any]] = []

    def record(*arguments: Any) -> list[Any]:
        decoded.append(list(run_network(*arguments)))
        return decoded[-1]

    with patch(RUN_STAGES, record):
        model.generate(texts, steps=2, **settings)
    times = []
    for _ in range(repeats):
        with patch(RUN_STAGES, side_effect=decoded):
            start = time.process_time()
            model.generate(texts, steps=2, **settings)
            times.append(time.process_time() - start)
    return min(times) / len(texts) * 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("input", type=Path)
    parser.add_argument("--model", default="de-en")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    model = noise2text.load(given.model, device="cpu")
    texts = given.input.read_text(encoding="utf-8").splitlines()[: given.sentences]
    own = measure(model, texts, repeats=given.repeats)
    none = measure(model, texts, repeats=given.repeats, preprocess="")
    print(f"{own:.0f} µs per sentence, {none:.0f} without preprocessing")
