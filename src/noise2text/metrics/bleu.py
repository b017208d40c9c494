"""BLEU in its many meanings: sacrebleu's with each tokenisation, fairseq's, and DiffuSeq's mean of sentences.

    BLEU = BP · exp(¼ Σₙ ln pₙ),   pₙ = matched n-grams / n-grams,   BP = min(1, exp(1 − r / c))

Of a corpus, matches, n-grams and the lengths c (hypotheses) and r (closest references) are sums over all
sentences; sacrebleu counts them, and where no n-gram of an order matches, its smoothing ("exp") takes half
a match, then a quarter, … fairseq's scorer takes the tokens as they stand and smooths nothing. DiffuSeq's
evaluation script takes the mean of nltk's sentence BLEU with smoothing method 4. These numbers do not
compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from noise2text.metrics.score import Array, Metric, Statistics, Texts, count_references, mean, ratio
from noise2text.metrics.utilities import UTILITIES

__all__ = ["BLEUS", "bleu", "bleu_of_sums", "by_sacrebleu", "corpus_bleu", "diffuseq_bleu", "fairseq_bleu"]

ORDER = 4


def bleu_of_sums(sums: Array, *, smooth: bool = True) -> Array:
    """BLEU in percent from sacrebleu's sums: both lengths, matches of each order, n-grams of each order."""
    ours, theirs = sums[..., 0], sums[..., 1]
    matches, totals = sums[..., 2 : 2 + ORDER], sums[..., 2 + ORDER :]
    missed = (matches == 0) & (totals > 0)
    halved = 0.5 ** np.cumsum(missed, axis=-1) if smooth else np.zeros_like(matches)
    precisions = ratio(np.where(missed, halved, matches), totals)
    defined = (precisions > 0).all(axis=-1) & (matches > 0).any(axis=-1)
    logarithms = np.log(np.where(precisions > 0, precisions, 1)).mean(axis=-1)
    shortness = np.minimum(0, 1 - ratio(theirs, ours))
    return np.where(defined, 100 * np.exp(shortness + logarithms), 0.0)


def by_sacrebleu(metric: Any, texts: Texts, formula: Callable[[Array], Array]) -> Statistics:
    """What a metric of sacrebleu counts in each sentence, under its own signature."""
    # sacrebleu wants the first reference of every sentence, then every second one, None where there is none.
    streams = list(zip_longest(*texts.references))
    rows = metric._extract_corpus_statistics(texts.hypotheses, streams)
    return Statistics(np.array(rows, dtype=np.float64), formula, str(metric.get_signature()))


def corpus_bleu(
    texts: Texts, *, tokenize: str = "13a", lowercase: bool = False, force: bool = True
) -> Statistics:
    """What sacrebleu counts for its BLEU; unless forced, it warns of texts that look tokenised already."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=force)
    return by_sacrebleu(metric, texts, bleu_of_sums)


def _fairseq(texts: Texts) -> Statistics:
    """Tokens are what stands between white space; sacrebleu counts, and nothing is smoothed."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    found = by_sacrebleu(metric, texts, partial(bleu_of_sums, smooth=False))
    return Statistics(found.rows, found.formula, f"as:fairseq|{found.signature}")


def _diffuseq(texts: Texts) -> Statistics:
    """nltk's sentence BLEU of the words between white space, by the formula that MBR selects with."""
    pairs = zip(texts.hypotheses, texts.references, strict=True)
    values = [_sentence(text.split(), [own.split() for own in references]) for text, references in pairs]
    counted = count_references(texts.references)
    return mean(
        values, f"as:DiffuSeq|nrefs:{counted}|case:mixed|tok:split|smooth:nltk-method4|mean:sentences"
    )


def _sentence(words: list[str], references: Sequence[list[str]]) -> float:
    """Matches are clipped by the reference that has most of an n-gram; the closest length counts."""
    matches = [_matches(words, references, n) for n in range(1, ORDER + 1)]
    closest = min((abs(len(own) - len(words)), len(own)) for own in references)[1]
    return UTILITIES["bleu-nltk4"].formula(matches, len(words), closest)


def _matches(words: list[str], references: Sequence[list[str]], n: int) -> int:
    most: Counter[tuple[str, ...]] = Counter()
    for own in references:
        most |= _grams(own, n)
    return (_grams(words, n) & most).total()


def _grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


bleu = Metric("bleu", "BLEU", partial(corpus_bleu, force=False))
fairseq_bleu = Metric("bleu-fairseq", "BLEU (fairseq)", _fairseq)
diffuseq_bleu = Metric("bleu-diffuseq", "BLEU (DiffuSeq)", _diffuseq)
BLEUS: tuple[Metric, ...] = (
    bleu,
    Metric("bleu-none", "BLEU (none)", partial(corpus_bleu, tokenize="none")),
    Metric("bleu-intl", "BLEU (intl)", partial(corpus_bleu, tokenize="intl")),
    Metric("bleu-char", "BLEU (char)", partial(corpus_bleu, tokenize="char")),
    Metric("bleu-lc", "BLEU (lowercase)", partial(corpus_bleu, lowercase=True)),
    fairseq_bleu,
    diffuseq_bleu,
)
