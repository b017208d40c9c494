"""Do some systems lose more than others on long sources? (thesis, 4.2.1)

The sentences are sorted by the length of their source and cut into buckets of about the same size; each
system has a BLEU in each bucket (figure 4.1). How the systems differ sentence by sentence is in `slopes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noise2text.analysis.finding import Finding, ResultRow, plot_lines
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.length_effect import compare_systems
from noise2text.core.config import option, require_at_least, require_choice
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.metrics.evaluate import References, bleu

__all__ = ["UNITS", "LengthUnit", "LengthsOptions", "buckets", "lengths"]


@dataclass(frozen=True)
class LengthUnit:
    """What lengths are counted in, and the length of each text."""

    unit: str
    lengths: Callable[[Sequence[str]], list[int]]


def _words(inputs: Inputs) -> LengthUnit:
    return LengthUnit("words", lambda texts: [len(text.split()) for text in texts])


def _characters(inputs: Inputs) -> LengthUnit:
    return LengthUnit("characters", lambda texts: [len(text) for text in texts])


def _tokens(inputs: Inputs) -> LengthUnit:
    """By the tokenizer of the first folder."""
    if not inputs.models:
        raise Problem("To measure in tokens, name the model folder whose tokenizer counts them.")
    name, folder = next(iter(inputs.folders_by_name().items()))
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise Problem(f"{folder} has no tokenizer.json: name a model folder.")
    tokenizer = Tokenizer.load(path)
    return LengthUnit(f"tokens of {name}", lambda texts: [len(row) for row in tokenizer.encode(texts)])


UNITS: dict[str, Callable[[Inputs], LengthUnit]] = {
    "words": _words,
    "characters": _characters,
    "tokens": _tokens,
}
"""How a source is measured, by name."""


@dataclass(frozen=True)
class LengthsOptions:
    """How sources are measured and grouped, and how sure is sure."""

    unit: str = option(
        "words", "what a source is measured in: words, characters or tokens (of a model named)"
    )
    buckets: int = option(5, "how many groups of about the same number of sentences")
    confidence: float = option(0.99, "of the bands, and of the tests")

    def __post_init__(self) -> None:
        require_choice(self, "unit", UNITS)
        require_at_least(self, 1, "buckets")
        if not 0 < self.confidence < 1:
            raise Problem(f"The setting confidence must be between 0 and 1, not {self.confidence}.")


def buckets(lengths: Sequence[int], count: int) -> np.ndarray:
    """The number of each sentence's bucket, from 0 on; equal lengths are never parted.

    With n sentences, a length goes where the middle of its sentences lies in the sorted order, so a bucket
    has more than n / count sentences only by halves of the lengths at its ends. Empty buckets are left out.
    """
    values, index, sizes = np.unique(np.asarray(lengths), return_inverse=True, return_counts=True)
    twice_middle = 2 * np.cumsum(sizes) - sizes  # in whole numbers, so that no rounding decides
    place = twice_middle * count // (2 * sizes.sum())
    return np.unique(place, return_inverse=True)[1].reshape(len(values))[index]


def lengths(inputs: Inputs) -> list[Finding]:
    """BLEU by length; and for several systems the lines of their differences and the table of tests."""
    options = inputs.chosen(LengthsOptions())
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
            raise Problem(f"The lines of {name} do not pair up, {counts}: give one line a sentence.")


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
    return Finding("bleu-by-length", "BLEU by length of the source", "thesis, figure 4.1", rows, about, draw)


def _span(shortest: int, longest: int) -> str:
    return str(shortest) if shortest == longest else f"{shortest}–{longest}"
