"""SARI (Xu et al., 2016): how well a text adds, keeps and deletes the n-grams that its references do.

With the n-grams of the source S, the text C and its r references R, for each order n = 1 … 4:

    add     the distinct n-grams in C but not in S, compared with those in R but not in S
    keep    the n-grams that S and C share, compared with those that S and R share, weighted 1 / r
    delete  the n-grams in S but not in C, compared with those in S but not in R

SARI is the mean of three scores, each averaged over the orders; a score without n-grams is 0. Two definitions
are in use. EASSE's, standard since 2019 and here `sari`, sums the counts over the corpus and takes F₁ of all
three. The first released script's, here `sari-sentence`, averages the scores of the sentences, counts
distinct n-grams, and takes the precision for delete. EASSE requires the same number of references everywhere;
here each sentence's counts are divided by its own number, which is equivalent in that case. Words are
sacrebleu's (13a), lowercased, as in EASSE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from noise2text.metrics.metric import (
    Array,
    EvaluationInput,
    Metric,
    NgramCounts,
    Statistics,
    count_ngrams,
    count_references,
    mean_statistics,
    safe_divide,
)

__all__ = ["sari", "sari_sentence"]

ORDER = 4


def _easse_statistics(texts: EvaluationInput) -> Statistics:
    rows = [
        [number for order in orders for number in _counts(*order)] for orders in _ngrams_by_sentence(texts)
    ]
    signature = "as:EASSE|level:corpus|delete:f1"
    return Statistics(np.array(rows, dtype=np.float64), _sari_from_counts, _signature(signature, texts))


def _sari_from_counts(sums: Array) -> Array:
    """The mean F₁ in percent of add, keep and delete over the orders."""
    triples = sums.reshape(*sums.shape[:-1], ORDER * 3, 3)
    correct, candidate_total, reference_ngrams = (triples[..., k] for k in range(3))
    return 100 * safe_divide(2 * correct, candidate_total + reference_ngrams).mean(axis=-1)


def _counts(
    source: NgramCounts, text: NgramCounts, reference_ngrams: NgramCounts, references: int
) -> list[float]:
    """For add, keep and delete: correct n-grams, the text's n-grams, the references' n-grams."""
    before, after = _multiply_counts(source, references), _multiply_counts(text, references)
    added, wanted = text.keys() - source.keys(), reference_ngrams.keys() - source.keys()
    kept, to_keep = before & after, before & reference_ngrams
    deleted, to_delete = before - after, before - reference_ngrams
    weighted = [
        *((kept & to_keep).total(), kept.total(), to_keep.total()),
        *((deleted & to_delete).total(), deleted.total(), to_delete.total()),
    ]
    return [len(added & wanted), len(added), len(wanted), *(count / references for count in weighted)]


def _sentence_statistics(texts: EvaluationInput) -> Statistics:
    values = [fmean(_sentence_sari(*order) for order in orders) for orders in _ngrams_by_sentence(texts)]
    return mean_statistics(values, _signature("as:Xu2016|level:sentence|delete:precision", texts))


def _sentence_sari(
    source: NgramCounts, text: NgramCounts, reference_ngrams: NgramCounts, references: int
) -> float:
    """The mean of add, keep and delete for one order; each distinct n-gram counts by its correct share."""
    before, after = _multiply_counts(source, references), _multiply_counts(text, references)
    added, wanted = text.keys() - source.keys(), reference_ngrams.keys() - source.keys()
    kept, to_keep = before & after, before & reference_ngrams
    deleted = before - after
    good, rightly_deleted = kept & reference_ngrams, deleted - reference_ngrams
    num_correct = len(added & wanted)
    add = _f1(_share(num_correct, len(added)), _share(num_correct, len(wanted)))
    keep = _f1(
        _share(_sum_of_shares(good, kept), len(kept)), _share(_sum_of_shares(good, to_keep), len(to_keep))
    )
    return (add + keep + _share(_sum_of_shares(rightly_deleted, deleted), len(deleted))) / 3


def _sum_of_shares(good: NgramCounts, of: NgramCounts) -> float:
    return sum(count / of[gram] for gram, count in good.items())


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _multiply_counts(grams: NgramCounts, number: int) -> NgramCounts:
    return Counter({gram: count * number for gram, count in grams.items()})


def _ngrams_by_sentence(
    texts: EvaluationInput,
) -> list[list[tuple[NgramCounts, NgramCounts, NgramCounts, int]]]:
    """For each sentence and order: the n-grams of source, text and references, and how many references."""
    split = _tokenizer_13a()
    sentences = zip(texts.sources or (), texts.hypotheses, texts.references, strict=True)
    return [
        [
            _ngrams_of_order(split(source), split(text), [split(one) for one in own], n)
            for n in range(1, ORDER + 1)
        ]
        for source, text, own in sentences
    ]


def _ngrams_of_order(
    source: Sequence[str], text: Sequence[str], references: Sequence[Sequence[str]], n: int
) -> tuple[NgramCounts, NgramCounts, NgramCounts, int]:
    reference_ngrams: NgramCounts = Counter()
    for own in references:
        reference_ngrams.update(count_ngrams(own, n))
    return count_ngrams(source, n), count_ngrams(text, n), reference_ngrams, len(references)


def _tokenizer_13a() -> Callable[[str], list[str]]:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize: Any = Tokenizer13a()
    return lambda text: tokenize(text.lower()).split()


def _signature(signature: str, texts: EvaluationInput) -> str:
    return f"{signature}|nrefs:{count_references(texts.references)}|case:lc|tok:13a"


sari = Metric("sari", "SARI", _easse_statistics, needs_sources=True)
sari_sentence = Metric("sari-sentence", "SARI (sentences)", _sentence_statistics, needs_sources=True)
