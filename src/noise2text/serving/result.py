"""The result of one text as JSON: what the service answers, and what the page shows.

    {"source": "Wo ist der Bahnhof?", "text": "Where is the train station?", "chosen": 3,
     "alternatives": ["Where is the train station?", "Where's the station?"],
     "candidates": [{"text": "Where is the station?", "length": 5, "score": -0.31, "drafts": ["At …", …]}, …],
     "utilities": [[100.0, 40.9, …], …],
     "steps": [{"time": 1.0, "text": …, "noisy": …, "tokens": ["At", …], "noisy_tokens": [" yes", …],
                "confidence": [0.14, …]}, …],
     "warnings": []}

`dataclasses.asdict` turns a `TextResult` into this object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from noise2text.models.output import GenerationOutput, TraceStep

__all__ = ["CandidateResult", "StepResult", "TextResult", "keep_steps", "make_results", "make_step"]


@dataclass(frozen=True)
class CandidateResult:
    """One candidate: its text, its length in tokens, and its score, which is None if it is not finite.

    The drafts are its texts at each denoising step, if traced.
    """

    text: str
    length: int
    score: float | None
    drafts: list[str]


@dataclass(frozen=True)
class StepResult:
    """One denoising step of the chosen candidate: the time from 1 to 0, the estimate and the noisy text.

    Both also come as tokens, each a text, and the estimate with the probability of each token; this is empty
    for models that write one token after another.
    """

    time: float
    text: str
    noisy: str
    tokens: list[str]
    noisy_tokens: list[str]
    confidence: list[float]


@dataclass(frozen=True)
class TextResult:
    """The result of one text.

    Fields:
        source: the input.
        text: the chosen text.
        chosen: the index of the chosen candidate; None without candidates, as for an empty input.
        alternatives: the chosen text and others that differ from it, best first; at most n.
        candidates: all candidates.
        utilities: the utility of each candidate (row) against each (column), if MBR compared them and the
            result is traced; else None. The chosen candidate has the highest row mean.
        steps: the denoising steps of the chosen candidate, if traced.
        warnings: what may be wrong with the input, such as another language.
    """

    source: str
    text: str
    chosen: int | None
    alternatives: list[str]
    candidates: list[CandidateResult]
    utilities: list[list[float]] | None
    steps: list[StepResult]
    warnings: list[str]


def make_results(sources: Sequence[str], output: GenerationOutput) -> list[TextResult]:
    """The result of each source, from what `Model.generate` returned for all of them."""
    return [
        TextResult(
            source=source,
            text=output.texts[i],
            chosen=output.chosen[i],
            alternatives=output.alternatives[i] if output.alternatives else [],
            candidates=_make_candidates(output, i),
            utilities=[_round(row, 4) for row in output.utilities[i]] or None,
            steps=[make_step(step) for step in output.traces[i]],
            warnings=output.warnings[i] if output.warnings else [],
        )
        for i, source in enumerate(sources)
    ]


def keep_steps(result: TextResult, count: int) -> TextResult:
    """The result with at most this many of its steps, evenly spaced; the first and the last are kept."""
    total = len(result.steps)
    if total <= count:
        return result
    kept = [round(number * (total - 1) / (count - 1)) for number in range(count)]
    candidates = [
        replace(candidate, drafts=[candidate.drafts[at] for at in kept]) for candidate in result.candidates
    ]
    return replace(result, steps=[result.steps[at] for at in kept], candidates=candidates)


def _make_candidates(output: GenerationOutput, i: int) -> list[CandidateResult]:
    texts, lengths, scores = output.candidates[i], output.lengths[i], output.scores[i]
    drafts = output.drafts[i] or [[] for _ in texts]
    return [
        CandidateResult(text, length, score if math.isfinite(score) else None, own_drafts)
        for text, length, score, own_drafts in zip(texts, lengths, scores, drafts, strict=True)
    ]


def make_step(step: TraceStep) -> StepResult:
    """A step of one candidate as JSON has it."""
    return StepResult(
        step.time,
        step.text,
        step.noisy,
        list(step.tokens),
        list(step.noisy_tokens),
        _round(step.confidence, 4),
    )


def _round(values: Sequence[float], digits: int) -> list[float]:
    return [round(value, digits) for value in values]
