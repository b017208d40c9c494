"""How good the texts are, and how each number was made.

Corpus BLEU and chrF are sacrebleu's, with its signatures; exact match is the share of texts that equal one
of their references. None of them means much alone: beside each stands the score of copying the source, which
on paraphrases beats many a model, and the share of texts that are such copies.

A metric is a function of the hypotheses and of each sentence's references, and answers with a Score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean
from typing import Any

from noise2text.problem import Problem

__all__ = ["LABELS", "METRICS", "Metric", "Score", "bleu", "chrf", "evaluate", "exact_match", "table"]

References = Sequence[Sequence[str]]  # a sequence a sentence; sentences may have different numbers


@dataclass(frozen=True)
class Score:
    """A number with the name of its metric and the signature of how it was made."""

    name: str
    score: float
    signature: str


Metric = Callable[[Sequence[str], References], Score]


def bleu(hypotheses: Sequence[str], references: References) -> Score:
    """sacrebleu's corpus BLEU with its defaults."""
    from sacrebleu.metrics import BLEU

    return _corpus("bleu", BLEU(), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References) -> Score:
    """sacrebleu's corpus chrF with its defaults."""
    from sacrebleu.metrics import CHRF

    return _corpus("chrf", CHRF(), hypotheses, references)


def _corpus(name: str, metric: Any, hypotheses: Sequence[str], references: References) -> Score:
    """A sacrebleu metric of the whole corpus."""
    # sacrebleu wants the first reference of every sentence, then every second one, None where there is none.
    streams = list(zip_longest(*references))
    score = metric.corpus_score(hypotheses, streams).score
    return Score(name, float(score), str(metric.get_signature()))


def exact_match(hypotheses: Sequence[str], references: References) -> Score:
    """The percentage of hypotheses that equal one of their references but for outer white space."""
    hits = sum(
        hypothesis.strip() in {reference.strip() for reference in own}
        for hypothesis, own in zip(hypotheses, references, strict=True)
    )
    numbers = {len(own) for own in references}
    counted = str(numbers.pop()) if len(numbers) == 1 else "var"
    signature = f"nrefs:{counted}|case:mixed|unicode:as-is|space:strip-outer"
    return Score("exact_match", 100 * hits / len(hypotheses), signature)


METRICS: tuple[Metric, ...] = (bleu, chrf, exact_match)
LABELS = {"bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match"}


def evaluate(
    hypotheses: Sequence[str], references: References, sources: Sequence[str] | None = None
) -> dict[str, Any]:
    """Every metric with its signature, the lengths and, given sources, what copying them would score.

    All of it can be written as JSON: {"bleu": {"score", "signature"}, "chrf": …, "exact_match": …,
    "lengths": {"characters": {"hypothesis", "reference", "ratio"}, "words": …}, "sentences"}, and with
    sources "copy_source" (the same metrics of the sources) and "copied" (the share of texts equal to theirs).
    """
    _check_counts(hypotheses=hypotheses, references=references)
    _check_references(references)
    if sources is not None:
        _check_counts(hypotheses=hypotheses, sources=sources)
    result = _scores(hypotheses, references)
    result["lengths"] = _lengths(hypotheses, references)
    result["sentences"] = len(hypotheses)
    if sources is not None:
        result["copy_source"] = _scores(sources, references)
        result["copied"] = exact_match(hypotheses, [[source] for source in sources]).score / 100
    return result


def table(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The rows (name, score, signature) of an evaluation, for printing."""
    rows = _metric_rows(result, "")
    for unit, mean in result["lengths"].items():
        ratio = "none" if mean["ratio"] is None else f"{mean['ratio']:.3f}"
        rows.append(
            (unit, f"{mean['hypothesis']:.2f}", f"mean|reference:{mean['reference']:.2f}|ratio:{ratio}")
        )
    rows.append(("sentences", str(result["sentences"]), ""))
    rows += _metric_rows(result.get("copy_source", {}), " of the source")
    if "copied" in result:
        rows.append(
            ("copied", f"{100 * result['copied']:.2f}", "percent equal to the source|space:strip-outer")
        )
    return rows


def _metric_rows(scores: Mapping[str, Any], suffix: str) -> list[tuple[str, str, str]]:
    return [
        (label + suffix, f"{scores[name]['score']:.2f}", scores[name]["signature"])
        for name, label in LABELS.items()
        if name in scores
    ]


def _scores(hypotheses: Sequence[str], references: References) -> dict[str, Any]:
    scores = [metric(hypotheses, references) for metric in METRICS]
    return {score.name: {"score": score.score, "signature": score.signature} for score in scores}


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
