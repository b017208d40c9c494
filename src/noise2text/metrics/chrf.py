"""chrF and TER, sacrebleu's: shared n-grams of characters, and edits a word.

    chrF = 5 P R / (4 P + R),   P and R the means of precision and recall over 1- to 6-grams of characters
    TER = edits / words of the references; an edit inserts, deletes, replaces or shifts

chrF++ adds words and pairs of words to the orders (Popović, 2017). With several references a sentence
counts with its best one in chrF, and in TER with the fewest edits over the mean length. TER is better when
lower.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from noise2text.metrics.bleu import by_sacrebleu
from noise2text.metrics.score import Array, Metric, Statistics, Texts, ratio

__all__ = ["chrf", "chrf_plus_plus", "ter"]


def _chrf_of_sums(sums: Array) -> Array:
    """chrF in percent; an order that one side does not have is left out of the means."""
    triples = sums.reshape(*sums.shape[:-1], -1, 3)
    ours, theirs, matches = (triples[..., k] for k in range(3))  # (…, orders)
    both = (ours > 0) & (theirs > 0)
    orders = both.sum(axis=-1).astype(np.float64)
    precision = ratio((ratio(matches, ours) * both).sum(axis=-1), orders)
    recall = ratio((ratio(matches, theirs) * both).sum(axis=-1), orders)
    return 100 * ratio(5 * precision * recall, 4 * precision + recall)


def _chrf(texts: Texts, *, words: int) -> Statistics:
    from sacrebleu.metrics import CHRF

    return by_sacrebleu(CHRF(word_order=words), texts, _chrf_of_sums)


def _ter_of_sums(sums: Array) -> Array:
    """TER in percent; 100 where there are edits and nothing to be edited into."""
    edits, words = sums[..., 0], sums[..., 1]
    return np.where(words > 0, 100 * ratio(edits, words), np.where(edits > 0, 100.0, 0.0))


def _ter(texts: Texts) -> Statistics:
    from sacrebleu.metrics import TER

    return by_sacrebleu(TER(), texts, _ter_of_sums)


chrf = Metric("chrf", "chrF", partial(_chrf, words=0))
chrf_plus_plus = Metric("chrf++", "chrF++", partial(_chrf, words=2))
ter = Metric("ter", "TER", _ter, lower_is_better=True)
