"""Exact match: the share of texts that equal one of their references, but for outer white space."""

from __future__ import annotations

from noise2text.metrics.score import Metric, Statistics, Texts, count_references, mean

__all__ = ["exact_match"]


def _exact(texts: Texts) -> Statistics:
    pairs = zip(texts.hypotheses, texts.references, strict=True)
    hits = [text.strip() in {one.strip() for one in own} for text, own in pairs]
    counted = count_references(texts.references)
    return mean(hits, f"nrefs:{counted}|case:mixed|unicode:as-is|space:strip-outer")


exact_match = Metric("exact_match", "exact match", _exact)
