"""BLEU by length of the source (Demirag, 2023, 4.2.1).

The sentences are sorted by the length of their source and split into buckets of about equal size; each system
has one BLEU per bucket (figure 4.1). `length_effect` compares the systems sentence by sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noise2text.analysis.finding import Finding, ResultRow, plot_lines
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.length_effect import compare_systems
from noise2text.core.config import Config, option
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.metrics.evaluate import References, bleu

__all__ = ["UNITS", "LengthUnit", "LengthsOptions", "analyze_lengths", "buckets"]


@dataclass(frozen=True)
class LengthUnit:
    """A unit of length, and the function that measures texts in it."""

    unit: str
    lengths: Callable[[Sequence[str]], list[int]]


def _words(inputs: Inputs) -> LengthUnit:
    return LengthUnit("words", lambda texts: [len(text.split()) for text in texts])


def _characters(inputs: Inputs) -> LengthUnit:
    return LengthUnit("characters", lambda texts: [len(text) for text in texts])


def _tokens(inputs: Inputs) -> LengthUnit:
    """Lengths in tokens of the first folder's tokenizer."""
    if not inputs.models:
        raise Problem("To measure in tokens, give the folder of the model whose tokenizer counts them.")
    name, folder = next(iter(inputs.folders_by_name().items()))
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise Problem(f"{folder} has no tokenizer.json: give a model folder.")
    tokenizer = Tokenizer.load(path)
    return LengthUnit(f"tokens of {name}", lambda texts: [len(row) for row in tokenizer.encode(texts)])


UNITS: dict[str, Callable[[Inputs], LengthUnit]] = {
    "words": _words,
    "characters": _characters,
    "tokens": _tokens,
}
"""The units of length by name."""


@dataclass(frozen=True)
class LengthsOptions(Config):
    """How sources are measured and grouped, and the confidence of the tests."""

    unit: str = option(
        "words", "unit of length: words, characters or tokens (of the first model)", choices=UNITS
    )
    buckets: int = option(5, "number of buckets of about equal size", minimum=1)
    confidence: float = option(0.99, "confidence of the bands and of the tests", above=0, below=1)


def buckets(lengths: Sequence[int], count: int) -> np.ndarray:
    """The bucket number of each sentence, from 0; equal lengths share a bucket.

    A length goes to the bucket in which the middle of its sentences lies in sorted order. So of n sentences a
    bucket exceeds n / count by at most half of the sentences of the lengths at its ends. Empty buckets are
    left out.
    """
    values, index, sizes = np.unique(np.asarray(lengths), return_inverse=True, return_counts=True)
    twice_middle = 2 * np.cumsum(sizes) - sizes  # integers, so that rounding decides nothing
    bucket = twice_middle * count // (2 * sizes.sum())
    return np.unique(bucket, return_inverse=True)[1].reshape(len(values))[index]


def analyze_lengths(inputs: Inputs, options: LengthsOptions) -> list[Finding]:
    """BLEU by length; for several systems also their differences and the table of tests."""
    _check(inputs)
    measure = UNITS[options.unit](inputs)
    source_lengths = measure.lengths([pair.src for pair in inputs.pairs])
    references = [pair.references for pair in inputs.pairs]
    numbers = buckets(source_lengths, options.buckets)
    found = [_by_length(inputs.outputs, references, source_lengths, numbers=numbers, unit=measure.unit)]
    if len(inputs.outputs) > 1:
        comparison = compare_systems(
            inputs.outputs, references, source_lengths, confidence=options.confidence
        )
        found += comparison.findings(unit=measure.unit)
    return found


def _check(inputs: Inputs) -> None:
    for name, texts in inputs.outputs.items():
        if len(texts) != len(inputs.pairs):
            counts = f"{len(texts)} texts to {len(inputs.pairs)} pairs"
            raise Problem(f"The lines of {name} do not match, {counts}: give one line per sentence.")


def _by_length(
    outputs: Mapping[str, Sequence[str]],
    references: References,
    source_lengths: Sequence[int],
    *,
    numbers: np.ndarray,
    unit: str,
) -> Finding:
    """Figure 4.1: corpus BLEU of each system in each bucket."""
    indices: list[list[int]] = [np.flatnonzero(numbers == each).tolist() for each in range(max(numbers) + 1)]
    spans = [(min(own), max(own)) for own in ([source_lengths[i] for i in inside] for inside in indices)]
    scores = {
        name: [bleu([texts[i] for i in inside], [references[i] for i in inside]) for inside in indices]
        for name, texts in outputs.items()
    }
    rows: list[ResultRow] = [
        {"system": name, "shortest": low, "longest": high, "sentences": len(inside), "bleu": score.score}
        for name, own in scores.items()
        for (low, high), inside, score in zip(spans, indices, own, strict=True)
    ]

    def draw(figure: Any) -> None:
        axes, x = figure.subplots(), range(len(spans))
        lines = {name: (x, [score.score for score in own]) for name, own in scores.items()}
        plot_lines(axes, lines, x=f"length of the source in {unit}", y="BLEU")
        axes.set_xticks(x, [_span(*span) for span in spans])

    about = f"BLEU|{next(iter(scores.values()))[0].signature}|length:{unit}"
    return Finding(
        "bleu-by-length", "BLEU by length of the source", "Demirag (2023), figure 4.1", rows, about, draw
    )


def _span(shortest: int, longest: int) -> str:
    return str(shortest) if shortest == longest else f"{shortest}–{longest}"
