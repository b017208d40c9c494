"""The kinds of BLEU in use: sacrebleu's with each tokenisation, fairseq's, and DiffuSeq's sentence mean.

    BLEU = BP · exp(¼ Σₙ ln pₙ),   pₙ = matched n-grams / n-grams,   BP = min(1, exp(1 − r / c))

For a corpus, matches, n-grams and the lengths c (hypotheses) and r (closest references) are sums over all
sentences, counted by sacrebleu; where no n-gram of an order matches, its smoothing ("exp") counts half a
match, then a quarter, … fairseq's scorer splits at white space and does not smooth. DiffuSeq's evaluation
script takes the mean of nltk's sentence BLEU with smoothing method 4. These numbers are not comparable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from noise2text.metrics.mbr_utilities import UTILITIES
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

__all__ = [
    "BLEU_METRICS",
    "bleu",
    "bleu_from_counts",
    "corpus_bleu",
    "diffuseq_bleu",
    "fairseq_bleu",
    "sacrebleu_statistics",
]

ORDER = 4


def bleu_from_counts(sums: Array, *, smooth: bool = True) -> Array:
    """BLEU in percent from sacrebleu's sums: both lengths, then matches and n-grams of each order."""
    hypothesis_length, reference_length = sums[..., 0], sums[..., 1]
    matches, totals = sums[..., 2 : 2 + ORDER], sums[..., 2 + ORDER :]
    unmatched = (matches == 0) & (totals > 0)
    smoothed_matches = 0.5 ** np.cumsum(unmatched, axis=-1) if smooth else np.zeros_like(matches)
    precisions = safe_divide(np.where(unmatched, smoothed_matches, matches), totals)
    defined = (precisions > 0).all(axis=-1) & (matches > 0).any(axis=-1)
    mean_log_precision = np.log(np.where(precisions > 0, precisions, 1)).mean(axis=-1)
    log_brevity_penalty = np.minimum(0, 1 - safe_divide(reference_length, hypothesis_length))
    return np.where(defined, 100 * np.exp(log_brevity_penalty + mean_log_precision), 0.0)


def sacrebleu_statistics(
    metric: Any, texts: EvaluationInput, formula: Callable[[Array], Array]
) -> Statistics:
    """The counts of a sacrebleu metric for each sentence, with its signature."""
    # sacrebleu takes the first references of all sentences, then the second ones, …, None if missing.
    streams = list(zip_longest(*texts.references))
    rows = metric._extract_corpus_statistics(texts.hypotheses, streams)
    return Statistics(np.array(rows, dtype=np.float64), formula, str(metric.get_signature()))


def corpus_bleu(
    texts: EvaluationInput, *, tokenize: str = "13a", lowercase: bool = False, force: bool = True
) -> Statistics:
    """The counts of sacrebleu's BLEU; unless forced, it warns about texts that look tokenised."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=force)
    return sacrebleu_statistics(metric, texts, bleu_from_counts)


def _fairseq_statistics(texts: EvaluationInput) -> Statistics:
    """The counts of fairseq's BLEU: tokens between white space, counted by sacrebleu, without smoothing."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    found = sacrebleu_statistics(metric, texts, partial(bleu_from_counts, smooth=False))
    return Statistics(found.rows, found.formula, f"as:fairseq|{found.signature}")


def _diffuseq_statistics(texts: EvaluationInput) -> Statistics:
    """nltk's sentence BLEU of the words between white space, by the formula that MBR uses."""
    pairs = zip(texts.hypotheses, texts.references, strict=True)
    values = [
        _nltk_sentence_bleu(text.split(), [reference.split() for reference in references])
        for text, references in pairs
    ]
    num_references = count_references(texts.references)
    return mean_statistics(
        values, f"as:DiffuSeq|nrefs:{num_references}|case:mixed|tok:split|smooth:nltk-method4|mean:sentences"
    )


def _nltk_sentence_bleu(words: list[str], references: Sequence[list[str]]) -> float:
    """nltk's sentence BLEU: matches clipped by the maximum over references, and the closest length."""
    matches = tuple(_clipped_matches(words, references, n) for n in range(1, ORDER + 1))
    closest = min((abs(len(reference) - len(words)), len(reference)) for reference in references)[1]
    return UTILITIES["bleu-nltk4"].scalar_formula(matches, len(words), closest)


def _clipped_matches(words: list[str], references: Sequence[list[str]], n: int) -> int:
    max_reference_counts: NgramCounts = Counter()
    for reference in references:
        max_reference_counts |= count_ngrams(reference, n)
    return (count_ngrams(words, n) & max_reference_counts).total()


bleu = Metric("bleu", "BLEU", partial(corpus_bleu, force=False))
fairseq_bleu = Metric("bleu-fairseq", "BLEU (fairseq)", _fairseq_statistics)
diffuseq_bleu = Metric("bleu-diffuseq", "BLEU (DiffuSeq)", _diffuseq_statistics)
BLEU_METRICS: tuple[Metric, ...] = (
    bleu,
    Metric("bleu-none", "BLEU (none)", partial(corpus_bleu, tokenize="none")),
    Metric("bleu-intl", "BLEU (intl)", partial(corpus_bleu, tokenize="intl")),
    Metric("bleu-char", "BLEU (char)", partial(corpus_bleu, tokenize="char")),
    Metric("bleu-lc", "BLEU (lowercase)", partial(corpus_bleu, lowercase=True)),
    fairseq_bleu,
    diffuseq_bleu,
)
