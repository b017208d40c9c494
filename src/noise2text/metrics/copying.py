"""How much the texts copy their source, which BLEU against the references cannot tell.

    iBLEU = α · BLEU(text, references) − (1 − α) · BLEU(text, source)          Sun and Zhou (2012)

They found α between 0.7 and 0.9 to agree with people; 0.8 is taken here, and both BLEUs are sacrebleu's of
the whole corpus. On paraphrases the source itself scores well, and some references are nearly the source:
how much the references copy stands beside how much the texts do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noise2text.metrics.bleu import bleu_of_sums, corpus_bleu
from noise2text.metrics.exact_match import exact_match
from noise2text.metrics.score import Array, Metric, References, Score, Statistics, Texts

__all__ = ["COPYING", "copies", "ibleu", "of_references", "source_bleu"]

ALPHA = 0.8


def _to_the_source(texts: Texts) -> Texts:
    return replace(texts, references=[[source] for source in texts.sources or ()])


def _source_bleu(texts: Texts) -> Statistics:
    found = corpus_bleu(_to_the_source(texts))
    return replace(found, signature=f"against:source|{found.signature}")


def _copies(texts: Texts) -> Statistics:
    found = exact_match.gather(_to_the_source(texts))
    return replace(found, signature=f"against:source|{found.signature}")


def _ibleu(texts: Texts) -> Statistics:
    good, copy = corpus_bleu(texts), corpus_bleu(_to_the_source(texts))
    rows = np.concatenate([good.rows, copy.rows], axis=1)
    return Statistics(rows, _ibleu_of_sums, f"alpha:{ALPHA}|{good.signature}")


def _ibleu_of_sums(sums: Array) -> Array:
    good, copy = np.split(sums, 2, axis=-1)
    return ALPHA * bleu_of_sums(good) - (1 - ALPHA) * bleu_of_sums(copy)


source_bleu = Metric("source_bleu", "BLEU against the source", _source_bleu, needs_sources=True)
copies = Metric("copies", "exact copies", _copies, needs_sources=True)
ibleu = Metric("ibleu", "iBLEU", _ibleu, needs_sources=True)
COPYING: tuple[Metric, ...] = (source_bleu, ibleu)


def of_references(references: References, sources: Sequence[str]) -> list[Score]:
    """How much the references copy: BLEU against the source and exact copies, each reference being a text."""
    pairs = [(one, source) for own, source in zip(references, sources, strict=True) for one in own]
    texts, theirs = [one for one, _ in pairs], [source for _, source in pairs]
    nothing = [[one] for one in texts]
    return [metric(texts, nothing, theirs) for metric in (source_bleu, copies)]
