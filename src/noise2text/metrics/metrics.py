"""How good the texts are, and how each number was made: the metrics by name, and an evaluation by several.

None of them means much alone: beside each stands the score of copying the source, which on paraphrases beats
many a model, the share of texts that are such copies, and how much the references themselves copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from noise2text.core.errors import Problem
from noise2text.metrics.bleu import BLEUS, bleu
from noise2text.metrics.chrf import chrf, chrf_plus_plus, ter
from noise2text.metrics.copying import COPYING, copies, ibleu, of_references, source_bleu
from noise2text.metrics.diversity import DIVERSITIES
from noise2text.metrics.exact_match import exact_match
from noise2text.metrics.intervals import interval
from noise2text.metrics.learned import LEARNED
from noise2text.metrics.rouge import ROUGES
from noise2text.metrics.sari import sari, sari_sentence
from noise2text.metrics.score import Metric, References, Score, Statistics

__all__ = [
    "LABELS",
    "METRICS",
    "NAMED",
    "Metric",
    "References",
    "Score",
    "bleu",
    "chrf",
    "diversity",
    "evaluate",
    "exact_match",
    "find_metrics",
]

METRICS: tuple[Metric, ...] = (bleu, chrf, exact_match)
NAMED: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *(*BLEUS, chrf, chrf_plus_plus, ter, *ROUGES),
        *(sari, sari_sentence, exact_match, source_bleu, copies, ibleu),
    )
}
LABELS = {name: metric.label for name, metric in NAMED.items()}


def find_metrics(names: str) -> tuple[Metric, ...]:
    """The metrics of a list with commas, e.g. bleu,chrf++,bertscore=models/minilm."""
    found = tuple(_find(name.strip()) for name in names.split(",") if name.strip())
    if not found:
        raise Problem("The list of metrics is empty; name some, such as bleu,chrf, or leave it out.")
    return found


def _find(name: str) -> Metric:
    name, _, folder = name.partition("=")
    spelled = name.lower()
    if spelled in LEARNED and not folder:
        raise Problem(f"The metric {name} is a model: say which local folder, {name}=FOLDER.")
    if spelled in LEARNED:
        return LEARNED[spelled](Path(folder))
    for known in (spelled, spelled.replace("-", "_")):
        if known in NAMED and not folder:
            return NAMED[known]
    known_names = ", ".join([*NAMED, *(f"{model}=FOLDER" for model in LEARNED)])
    raise Problem(f"There is no metric {name!r}; there are {known_names}.")


def evaluate(
    hypotheses: Sequence[str],
    references: References,
    sources: Sequence[str] | None = None,
    *,
    metrics: Sequence[Metric] = METRICS,
    draws: int = 0,
) -> dict[str, Any]:
    """Every metric with its signature, the lengths and, given sources, what copying them would score.

    All of it can be written as JSON: {"bleu": {"score", "signature"}, "chrf": …, "exact_match": …,
    "lengths": {"characters": {"hypothesis", "reference", "ratio"}, "words": …}, "sentences"}, and with
    sources "copy_source" (the same metrics of the sources), "copied" (the share of texts equal to theirs) and
    "copying" (BLEU against the source, iBLEU; under "references" how much these copy). With bootstrap draws
    every score has an "interval" {"low", "high", "signature"}.
    """
    _check_counts(hypotheses=hypotheses, references=references)
    _check_references(references)
    if sources is not None:
        _check_counts(hypotheses=hypotheses, sources=sources)
    result = _scores(metrics, draws, hypotheses, references, sources)
    result["lengths"] = _lengths(hypotheses, references)
    result["sentences"] = len(hypotheses)
    if sources is not None:
        of_quality = [metric for metric in metrics if metric not in (*COPYING, copies)]
        result["copy_source"] = _scores(of_quality, draws, sources, references, sources)
        result["copied"] = copies(hypotheses, references, sources).score / 100
        result["copying"] = _scores(COPYING, draws, hypotheses, references, sources)
        result["copying"]["references"] = {
            score.name: {"score": score.score, "signature": score.signature}
            for score in of_references(references, sources)
        }
    return result


def diversity(candidates: Sequence[Sequence[str]], *, draws: int = 0) -> dict[str, Any]:
    """Every measure of how different a source's texts are that could be counted, as in `evaluate`."""
    found = ((kind.name, kind.statistics(candidates)) for kind in DIVERSITIES)
    return {name: _entry(numbers, draws) for name, numbers in found if numbers is not None}


def _scores(
    metrics: Iterable[Metric],
    draws: int,
    hypotheses: Sequence[str],
    references: References,
    sources: Sequence[str] | None,
) -> dict[str, Any]:
    return {
        metric.name: _entry(metric.statistics(hypotheses, references, sources), draws) for metric in metrics
    }


def _entry(statistics: Statistics, draws: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"score": statistics.score, "signature": statistics.signature}
    if draws:
        found = interval(statistics, draws=draws)
        entry["interval"] = {"low": found.low, "high": found.high, "signature": found.signature}
    return entry


def _lengths(hypotheses: Sequence[str], references: References) -> dict[str, Any]:
    """Mean lengths in characters (code points) and in words (between white space)."""
    return {
        "characters": _mean_lengths(len, hypotheses, references),
        "words": _mean_lengths(lambda text: len(text.split()), hypotheses, references),
    }


def _mean_lengths(
    measure: Callable[[str], int], hypotheses: Sequence[str], references: References
) -> dict[str, float | None]:
    """The mean length of both sides, a sentence counting once however many references it has."""
    ours = fmean(measure(text) for text in hypotheses)
    theirs = fmean(fmean(measure(text) for text in own) for own in references)
    return {"hypothesis": ours, "reference": theirs, "ratio": ours / theirs if theirs else None}


def _check_counts(**lines: Sequence[Any]) -> None:
    counts = " and ".join(f"{len(side)} {name}" for name, side in lines.items())
    if len({len(side) for side in lines.values()}) > 1:
        raise Problem(f"The lines do not pair up, {counts}: give one line a sentence, in the same order.")
    if not all(lines.values()):
        raise Problem(f"There is nothing to evaluate, {counts}: give at least one sentence.")


def _check_references(references: References) -> None:
    for number, own in enumerate(references, start=1):
        if isinstance(own, str):
            raise Problem(f"Sentence {number} has a bare string as its references: give a list of strings.")
        if not own:
            raise Problem(f"Sentence {number} has no reference: give it at least one.")
