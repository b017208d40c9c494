"""chrF and TER by sacrebleu: shared n-grams of characters, and edits per word.

    chrF = 5 P R / (4 P + R),   P and R the means of precision and recall over 1- to 6-grams of characters
    TER = edits / words of the references; an edit inserts, deletes, replaces or shifts

chrF++ adds word unigrams and bigrams to the orders (Popović, 2017). With several references, chrF uses the
best one of each sentence, and TER the fewest edits over the mean length. Lower TER is better.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from noise2text.metrics.bleu import sacrebleu_statistics
from noise2text.metrics.metric import Array, EvaluationInput, Metric, Statistics, safe_divide

__all__ = ["chrf", "chrf_plus_plus", "ter"]


def _chrf_from_counts(sums: Array) -> Array:
    """chrF in percent; orders that one side lacks are left out of the means."""
    triples = sums.reshape(*sums.shape[:-1], -1, 3)
    hypothesis_counts, reference_counts, matches = (triples[..., k] for k in range(3))  # (…, orders)
    both = (hypothesis_counts > 0) & (reference_counts > 0)
    orders = both.sum(axis=-1).astype(np.float64)
    precision = safe_divide((safe_divide(matches, hypothesis_counts) * both).sum(axis=-1), orders)
    recall = safe_divide((safe_divide(matches, reference_counts) * both).sum(axis=-1), orders)
    return 100 * safe_divide(5 * precision * recall, 4 * precision + recall)


def _chrf(texts: EvaluationInput, *, words: int) -> Statistics:
    from sacrebleu.metrics import CHRF

    return sacrebleu_statistics(CHRF(word_order=words), texts, _chrf_from_counts)


def _ter_from_counts(sums: Array) -> Array:
    """TER in percent; 100 if there are edits but no reference words."""
    edits, words = sums[..., 0], sums[..., 1]
    return np.where(words > 0, 100 * safe_divide(edits, words), np.where(edits > 0, 100.0, 0.0))


def _ter(texts: EvaluationInput) -> Statistics:
    from sacrebleu.metrics import TER

    return sacrebleu_statistics(TER(), texts, _ter_from_counts)


chrf = Metric("chrf", "chrF", partial(_chrf, words=0))
chrf_plus_plus = Metric("chrf++", "chrF++", partial(_chrf, words=2))
ter = Metric("ter", "TER", _ter, lower_is_better=True)
