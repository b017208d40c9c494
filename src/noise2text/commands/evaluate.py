"""Evaluate files: texts, their references and, if given, sources, candidates and another system's texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from noise2text.core.errors import Problem
from noise2text.data.corpus import (
    read_alternatives,
    read_candidates,
    read_references,
    read_sources,
    read_texts,
)
from noise2text.metrics.bootstrap import N_RESAMPLES
from noise2text.metrics.evaluate import (
    DEFAULT_METRICS,
    Metric,
    References,
    evaluate,
    evaluate_alternatives,
    evaluate_diversity,
)
from noise2text.metrics.significance import paired_bootstrap

__all__ = ["EvaluationFiles", "evaluate_files"]


@dataclass(frozen=True)
class EvaluationFiles:
    """The paths of the texts, the references and, if given, the other inputs."""

    texts: str
    references: str
    sources: str | None = None
    against: str | None = None  # another system's texts
    candidates: str | None = (
        None  # several texts per source; by default those in the file of the texts, if any
    )


def evaluate_files(
    files: EvaluationFiles, *, metrics: Sequence[Metric] = DEFAULT_METRICS, confidence: bool = False
) -> dict[str, Any]:
    """The scores, with "alternatives" and "diversity" where the file of the texts has them or candidates.

    If there is another system, "against" has the tests of the differences.
    """
    n_resamples = N_RESAMPLES if confidence else 0
    texts, references = read_texts(files.texts), read_references(files.references)
    if texts and all("\t" in text for text in texts):
        raise Problem(
            f"{files.texts} has several texts in each line, with tabs between them: "
            "generate them with --json, which keeps them apart."
        )
    sources = None if files.sources is None else list(read_sources(files.sources))
    candidates = _read_candidates(files, len(texts))
    alternatives = None if files.texts == "-" else read_alternatives(files.texts)
    other_texts = None if files.against is None else read_texts(files.against)
    result = evaluate(texts, references, sources, metrics=metrics, n_resamples=n_resamples)
    if alternatives is not None:
        result["alternatives"] = evaluate_alternatives(alternatives, references, n_resamples=n_resamples)
    if candidates is not None:
        result["diversity"] = evaluate_diversity(candidates, n_resamples=n_resamples)
    if files.against is not None and other_texts is not None:
        tests = _test_significance(
            {files.against: other_texts, files.texts: texts}, references, sources, metrics
        )
        result["against"] = {"file": files.against, "tests": tests}
    return result


def _read_candidates(files: EvaluationFiles, count: int) -> list[list[str]] | None:
    if files.candidates is None:
        # Standard input can be read only once, and the texts were read from it.
        return None if files.texts == "-" else read_candidates(files.texts)
    found = read_candidates(files.candidates)
    if found is None:
        raise Problem(f'{files.candidates} has no candidates: give JSON Lines with a list "candidates".')
    if len(found) != count:
        lines = f"{len(found)} lines of candidates and {count} texts"
        raise Problem(f"The lines do not match, {lines}: give one line per sentence, in the same order.")
    return found


def _test_significance(
    systems: dict[str, list[str]],
    references: References,
    sources: list[str] | None,
    metrics: Sequence[Metric],
) -> list[dict[str, Any]]:
    """For each metric both scores, their difference and its p-value."""
    if len(systems) == 1:
        raise Problem("A system cannot be tested against itself: give another file with --against.")
    theirs, ours = paired_bootstrap(systems, references, sources, metrics=metrics).values()
    return [
        {
            "metric": own.metric,
            "score": own.score,
            "other": other.score,
            "difference": own.score - other.score,
            "p": own.p,
            "signature": own.signature,
        }
        for own, other in zip(ours, theirs, strict=True)
    ]
