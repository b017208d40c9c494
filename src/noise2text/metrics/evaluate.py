"""Evaluate texts with several metrics, found by name.

No metric means much on its own: each is reported with the score of copying the source, which beats many
models on paraphrases, the share of texts that are copies, and how much the references copy.

To add a metric, write a `Metric` (metric.py; exact_match.py is a short one) and list it in `METRICS_BY_NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from noise2text.core.arguments import parse_whole_number, require_texts
from noise2text.core.errors import Problem, abbreviate
from noise2text.metrics.alternatives import measure_alternatives
from noise2text.metrics.bleu import BLEU_METRICS, bleu
from noise2text.metrics.bootstrap import confidence_interval
from noise2text.metrics.chrf import chrf, chrf_plus_plus, ter
from noise2text.metrics.copying import (
    COPY_METRICS,
    exact_copies,
    ibleu,
    measure_reference_copying,
    source_bleu,
)
from noise2text.metrics.diversity import DIVERSITY_METRICS
from noise2text.metrics.exact_match import exact_match
from noise2text.metrics.metric import Metric, References, Score, Statistics
from noise2text.metrics.model_based import MODEL_METRICS
from noise2text.metrics.rouge import ROUGE_METRICS, rouge_l
from noise2text.metrics.sari import sari, sari_sentence

__all__ = [
    "DEFAULT_METRICS",
    "LABELS",
    "METRICS_BY_NAME",
    "METRICS_OF_REPORTS",
    "Metric",
    "References",
    "Score",
    "bleu",
    "chrf",
    "evaluate",
    "evaluate_alternatives",
    "evaluate_diversity",
    "exact_match",
    "find_metrics",
]

DEFAULT_METRICS: tuple[Metric, ...] = (bleu, chrf, exact_match)
METRICS_OF_REPORTS = (*DEFAULT_METRICS, rouge_l) if find_spec("rouge_score") else DEFAULT_METRICS
"""The default metrics and, if its package is installed, ROUGE-L."""
METRICS_BY_NAME: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *(*BLEU_METRICS, chrf, chrf_plus_plus, ter, *ROUGE_METRICS),
        *(sari, sari_sentence, exact_match, source_bleu, exact_copies, ibleu),
    )
}
LABELS = {name: metric.label for name, metric in METRICS_BY_NAME.items()}


def find_metrics(names: str | Sequence[str | Metric]) -> tuple[Metric, ...]:
    """The metrics of a list, or of a text with commas, such as bleu,chrf++,bertscore=models/minilm."""
    if isinstance(names, str):
        names = [name for name in names.split(",") if name.strip()]
    elif not isinstance(names, Sequence):
        raise Problem(f"Metrics are a list of names, such as ['bleu', 'chrf'], not {abbreviate(names)}.")
    if not names:
        raise Problem("The list of metrics is empty; name some, such as bleu,chrf, or leave it out.")
    return tuple(_find(name.strip() if isinstance(name, str) else name) for name in names)


def _find(name: str | Metric) -> Metric:
    if isinstance(name, Metric):
        return name
    if not isinstance(name, str):
        raise Problem(f"A metric has a name, not {abbreviate(name)}; there are {_known_names()}.")
    name, _, folder = name.partition("=")
    lowered = name.lower()
    if lowered in MODEL_METRICS and not folder:
        raise Problem(f"The metric {name} is a model: say which local folder, {name}=FOLDER.")
    if lowered in MODEL_METRICS:
        return MODEL_METRICS[lowered](Path(folder))
    for known in (lowered, lowered.replace("-", "_")):
        if known in METRICS_BY_NAME and not folder:
            return METRICS_BY_NAME[known]
    raise Problem(f"There is no metric {name!r}; there are {_known_names()}.")


def _known_names() -> str:
    return ", ".join([*METRICS_BY_NAME, *(f"{model}=FOLDER" for model in MODEL_METRICS)])


def evaluate(
    hypotheses: Sequence[str],
    references: References,
    sources: Sequence[str] | None = None,
    *,
    metrics: str | Sequence[str | Metric] = DEFAULT_METRICS,
    n_resamples: int = 0,
) -> dict[str, Any]:
    """Every metric with its signature, the lengths and, with sources, the scores of copying them.

    Args:
        hypotheses: the generated texts.
        references: one or more right answers for each of them.
        sources: what they were generated from, to measure copying.
        metrics: their names, such as `["bleu", "ter", "rouge-l", "bertscore=FOLDER"]`, or a `Metric` of your
            own.
        n_resamples: bootstrap resamples for a confidence interval of each score; 0 for none.

    Returns:
        JSON: {"bleu": {"score", "signature"}, "chrf": …, "exact_match": …, "lengths": {"characters":
        {"hypothesis", "reference", "ratio"}, "words": …}, "sentences"}. With sources also "copy_source" (the
        same metrics of the sources), "copied" (the share of texts equal to theirs) and "copying" (BLEU
        against the source, iBLEU; under "references" how much these copy). With bootstrap resamples every
        score has an "interval" {"low", "high", "signature"}.

    >>> import noise2text
    >>> result = noise2text.evaluate(["2001-05-12", "1957-04-08"], [["2001-05-12"], ["1957-04-07"]])
    >>> result["exact_match"]["score"]
    50.0
    >>> sorted(noise2text.evaluate(["a cat"], [["the cat"]], metrics=["ter"]))
    ['lengths', 'sentences', 'ter']
    """
    require_texts(hypotheses, where="evaluate")
    _check_counts(hypotheses=hypotheses, references=references)
    _check_references(references)
    if sources is not None:
        require_texts(sources, where="evaluate")
        _check_counts(hypotheses=hypotheses, sources=sources)
    metrics = find_metrics(metrics)
    n_resamples = parse_whole_number(n_resamples, "n_resamples", where="evaluate")
    result = _scores(metrics, n_resamples, hypotheses, references, sources)
    result["lengths"] = _lengths(hypotheses, references)
    result["sentences"] = len(hypotheses)
    if sources is not None:
        quality_metrics = [metric for metric in metrics if metric not in (*COPY_METRICS, exact_copies)]
        result["copy_source"] = _scores(quality_metrics, n_resamples, sources, references, sources)
        result["copied"] = exact_copies(hypotheses, references, sources).score / 100
        result["copying"] = _scores(COPY_METRICS, n_resamples, hypotheses, references, sources)
        result["copying"]["references"] = {
            score.name: {"score": score.score, "signature": score.signature}
            for score in measure_reference_copying(references, sources)
        }
    return result


def evaluate_alternatives(
    alternatives: Sequence[Sequence[str]], references: References, *, n_resamples: int = 0
) -> dict[str, Any]:
    """What several texts per source, best first, are worth, in the form of `evaluate`.

    >>> from noise2text.metrics.evaluate import evaluate_alternatives
    >>> found = evaluate_alternatives([["He is ill.", "He is sick."]], [["He's sick.", "He is sick."]])
    >>> [round(found[name]["score"], 1) for name in ("quality_1", "best", "right")]
    [27.7, 100.0, 1.0]
    """
    _check_counts(alternatives=alternatives, references=references)
    _check_references(references)
    found = measure_alternatives(alternatives, references)
    return {name: _score_entry(numbers, n_resamples) for name, numbers in found.items()}


def evaluate_diversity(candidates: Sequence[Sequence[str]], *, n_resamples: int = 0) -> dict[str, Any]:
    """Every diversity metric that has a value, in the form of `evaluate`."""
    found = ((kind.name, kind.statistics(candidates)) for kind in DIVERSITY_METRICS)
    return {name: _score_entry(numbers, n_resamples) for name, numbers in found if numbers is not None}


def _scores(
    metrics: Iterable[Metric],
    n_resamples: int,
    hypotheses: Sequence[str],
    references: References,
    sources: Sequence[str] | None,
) -> dict[str, Any]:
    return {
        metric.name: _score_entry(metric.statistics(hypotheses, references, sources), n_resamples)
        for metric in metrics
    }


def _score_entry(statistics: Statistics, n_resamples: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"score": statistics.score, "signature": statistics.signature}
    if n_resamples:
        found = confidence_interval(statistics, n_resamples=n_resamples)
        entry["interval"] = {"low": found.low, "high": found.high, "signature": found.signature}
    return entry


def _lengths(hypotheses: Sequence[str], references: References) -> dict[str, Any]:
    """Mean lengths in characters (code points) and in words (split at white space)."""
    return {
        "characters": _mean_lengths(len, hypotheses, references),
        "words": _mean_lengths(lambda text: len(text.split()), hypotheses, references),
    }


def _mean_lengths(
    measure: Callable[[str], int], hypotheses: Sequence[str], references: References
) -> dict[str, float | None]:
    """The mean length of both sides; every sentence counts once, whatever its number of references."""
    hypothesis = fmean(measure(text) for text in hypotheses)
    reference = fmean(
        fmean(measure(text) for text in sentence_references) for sentence_references in references
    )
    return {
        "hypothesis": hypothesis,
        "reference": reference,
        "ratio": hypothesis / reference if reference else None,
    }


def _check_counts(**lines: Sequence[Any]) -> None:
    for name, side in lines.items():
        if isinstance(side, str | bytes | Mapping | AbstractSet) or not hasattr(side, "__len__"):
            raise Problem(f"The {name} are a list with one item per sentence, not {abbreviate(side)}.")
    counts = " and ".join(f"{len(side)} {name}" for name, side in lines.items())
    if len({len(side) for side in lines.values()}) > 1:
        raise Problem(f"The lines do not pair up, {counts}: give one line per sentence, in the same order.")
    if not all(len(side) for side in lines.values()):
        raise Problem(f"There is nothing to evaluate, {counts}: give at least one sentence.")


def _check_references(references: References) -> None:
    for number, sentence_references in enumerate(references, start=1):
        if isinstance(sentence_references, str):
            raise Problem(f"Sentence {number} has a bare string as its references: give a list of strings.")
        if sentence_references is not None:
            require_texts(sentence_references, where=f"Sentence {number}, in its references,")
        if sentence_references is None or not len(sentence_references):
            raise Problem(f"Sentence {number} has no reference: give it at least one.")
