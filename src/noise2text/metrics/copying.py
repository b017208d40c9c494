"""How much the texts copy their source, which BLEU against the references does not show.

    iBLEU = α · BLEU(text, references) − (1 − α) · BLEU(text, source)          Sun and Zhou (2012)

They found α between 0.7 and 0.9 to agree with human judgements; here it is 0.8, and both BLEUs are
sacrebleu's corpus BLEU. On paraphrases the source itself scores high, and some references are almost the
source: so the references' copying is reported beside that of the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noise2text.metrics.bleu import bleu_from_counts, corpus_bleu
from noise2text.metrics.exact_match import exact_match
from noise2text.metrics.metric import Array, EvaluationInput, Metric, References, Score, Statistics

__all__ = ["COPY_METRICS", "exact_copies", "ibleu", "measure_reference_copying", "source_bleu"]

ALPHA = 0.8


def _with_sources_as_references(texts: EvaluationInput) -> EvaluationInput:
    return replace(texts, references=[[source] for source in texts.sources or ()])


def _source_bleu(texts: EvaluationInput) -> Statistics:
    found = corpus_bleu(_with_sources_as_references(texts))
    return replace(found, signature=f"against:source|{found.signature}")


def _exact_copies(texts: EvaluationInput) -> Statistics:
    found = exact_match.compute(_with_sources_as_references(texts))
    return replace(found, signature=f"against:source|{found.signature}")


def _ibleu(texts: EvaluationInput) -> Statistics:
    against_references, against_sources = corpus_bleu(texts), corpus_bleu(_with_sources_as_references(texts))
    rows = np.concatenate([against_references.rows, against_sources.rows], axis=1)
    return Statistics(rows, _ibleu_from_counts, f"alpha:{ALPHA}|{against_references.signature}")


def _ibleu_from_counts(sums: Array) -> Array:
    against_references, against_sources = np.split(sums, 2, axis=-1)
    return ALPHA * bleu_from_counts(against_references) - (1 - ALPHA) * bleu_from_counts(against_sources)


source_bleu = Metric("source_bleu", "BLEU against the source", _source_bleu, needs_sources=True)
exact_copies = Metric("copies", "exact copies", _exact_copies, needs_sources=True)
ibleu = Metric("ibleu", "iBLEU", _ibleu, needs_sources=True)
COPY_METRICS: tuple[Metric, ...] = (source_bleu, ibleu)


def measure_reference_copying(references: References, sources: Sequence[str]) -> list[Score]:
    """How much the references copy: their BLEU against the source, and their exact copies."""
    pairs = [(one, source) for own, source in zip(references, sources, strict=True) for one in own]
    texts, paired_sources = [one for one, _ in pairs], [source for _, source in pairs]
    own_references = [[one] for one in texts]
    return [metric(texts, own_references, paired_sources) for metric in (source_bleu, exact_copies)]
