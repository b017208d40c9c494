"""The texts of an arm: generated once and kept, so that any metric can be computed later."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noise2text.core.files import write_text_file
from noise2text.experiments.measures import ArmTexts
from noise2text.models import Model

__all__ = ["GeneratedArm", "read_arm_texts", "write_arm_texts"]


@dataclass(frozen=True)
class GeneratedArm:
    """What an arm generated, and the numbers that belong to generating: times, and lengths if requested."""

    texts: ArmTexts
    numbers: Mapping[str, float]

    @classmethod
    def generate(
        cls,
        model: Model,
        sources: Sequence[str],
        *,
        seed: int,
        batch: int,
        settings: Mapping[str, Any],
        sample_settings: Mapping[str, Any] | None,
        num_samples: int,
    ) -> GeneratedArm:
        """The texts for the sources and, with settings for them, the samples; only the texts are timed."""
        started = time.perf_counter()
        output = model.generate(sources, seed=seed, batch=batch, **settings)
        seconds = time.perf_counter() - started
        numbers = {"decoding_seconds": seconds, "sentences_per_second": len(sources) / seconds}
        if settings.get("length") is not None:
            lengths = [len(row) for row in model.tokenizer.encode(output.texts)]
            numbers["length_match"] = 100 * lengths.count(settings["length"]) / len(lengths)
        samples = None
        if sample_settings is not None:
            drawn = model.generate(sources, seed=seed, batch=batch, **sample_settings)
            samples = [_repeat(own, num_samples) for own in drawn.candidates]
        return cls(ArmTexts(output.texts, output.candidates, samples), numbers)


def _repeat(candidates: Sequence[str], count: int) -> list[str]:
    """The first so many candidates; a single one is what a system without randomness gives each time."""
    return list(candidates) * count if len(candidates) == 1 else list(candidates[:count])


def write_arm_texts(path: Path, sources: Sequence[str], texts: ArmTexts) -> None:
    """Write one JSON object per source."""
    rows: list[dict[str, Any]] = [
        {"src": source, "text": text, "candidates": list(candidates)}
        for source, text, candidates in zip(sources, texts.texts, texts.candidates, strict=True)
    ]
    for row, samples in zip(rows, texts.samples or (), strict=False):
        row["samples"] = list(samples)
    write_text_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_arm_texts(path: Path) -> ArmTexts:
    """The texts that were written."""
    with path.open(encoding="utf-8", newline="\n") as file:  # a text may have other ends of lines
        rows = [json.loads(line) for line in file]
    samples = [row["samples"] for row in rows] if "samples" in rows[0] else None
    return ArmTexts([row["text"] for row in rows], [row["candidates"] for row in rows], samples)
