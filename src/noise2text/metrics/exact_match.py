"""Exact match: the share of texts that equal one of their references, ignoring outer white space."""

from __future__ import annotations

from noise2text.metrics.metric import EvaluationInput, Metric, Statistics, count_references, mean_statistics

__all__ = ["exact_match"]


def _exact(texts: EvaluationInput) -> Statistics:
    pairs = zip(texts.hypotheses, texts.references, strict=True)
    matches = [text.strip() in {one.strip() for one in references} for text, references in pairs]
    num_references = count_references(texts.references)
    return mean_statistics(matches, f"nrefs:{num_references}|case:mixed|unicode:as-is|space:strip-outer")


exact_match = Metric("exact_match", "exact match", _exact)
