"""Utilities for minimum Bayes risk (MBR): how well one text agrees with another.

Every utility is a function of three things: the number of n-grams of each order that the two texts share
(clipped), and the number of symbols of each text, because a text of L symbols has L − n + 1 n-grams.
`pairwise_ngrams` counts them for all pairs of many sentences at once and has the formulas for whole arrays.
The formulas here are the definition, equal to sacrebleu and nltk to the last bit: they decide where two
candidates are so close that rounding matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noise2text.metrics import pairwise_ngrams as ngrams
from noise2text.metrics.pairwise_ngrams import NumberSymbols, TextPairs
from noise2text.metrics.sacrebleu_sentences import (
    sentence_bleu_metric,
    sentence_bleu_signature,
    sentence_chrf_signature,
    split_13a,
)

__all__ = ["DIRECTIONS", "UTILITIES", "NgramUtility", "UtilityMatrices"]

DIRECTIONS: dict[str, Callable[[TextPairs], TextPairs]] = {
    "hypothesis": lambda pairs: pairs,
    "reference": lambda pairs: pairs.swapped,
}
"""Whether the candidate is the hypothesis or the reference in a pair with another."""


@dataclass(frozen=True)
class UtilityMatrices:
    """The utilities of all pairs of texts in each of S sentences: one row per candidate."""

    values: NDArray[np.float64]  # (S, C, C), exact up to rounding, 0 where there is no text
    sizes: NDArray[np.int64]  # (S,): the number of texts of each sentence
    exact: Callable[[int, int], list[float]]  # (sentence, row) → the row by the definition


ScalarFormula = Callable[[tuple[int, ...], int, int], float]  # of shared n-grams by order, both lengths
Grams = tuple[Counter[Hashable], ...]  # one counter per order


@dataclass(frozen=True)
class NgramUtility:
    """The utility of a hypothesis for a reference, as a function of shared n-grams and lengths."""

    name: str  # its name in the settings
    split: Callable[[str], Sequence[Any]]  # into a tuple of words or a string of characters
    number_symbols: NumberSymbols  # numbers the symbols of many texts
    order: int
    scalar_formula: ScalarFormula  # the definition, for one pair
    array_formula: Callable[[TextPairs], NDArray[np.float64]]  # the same for many pairs
    describe: Callable[[], str]  # called late, because it may import sacrebleu

    @property
    def signature(self) -> str:
        """The signature: tokenisation, case, smoothing, version."""
        return self.describe()

    def __call__(self, hypothesis: str, reference: str) -> float:
        """The utility of one pair, by the definition."""
        ours, theirs = self.split(hypothesis), self.split(reference)
        return self.scalar_formula(
            _count_shared(self._grams(ours), self._grams(theirs)), len(ours), len(theirs)
        )

    def utility_matrix(self, texts: Sequence[str]) -> list[list[float]]:
        """The utility of every pair of texts: one row per hypothesis, one column per reference."""
        return [
            row
            for utility_matrices in self.utility_matrices([texts])
            for row in utility_matrices.values[0].tolist()
        ]

    def utility_matrices(
        self, sentences: Sequence[Sequence[str]], *, candidate_is: str = "hypothesis"
    ) -> Iterator[UtilityMatrices]:
        """The utilities of all sentences, in blocks; `candidate_is` says what the rows are."""
        symbols = [[self.split(text) for text in texts] for texts in sentences]
        for block in ngrams.count_shared_ngrams(symbols, self.order, number_symbols=self.number_symbols):
            pairs = DIRECTIONS[candidate_is](block)
            yield UtilityMatrices(self.array_formula(pairs), pairs.sizes, partial(self._compute_row, pairs))

    def _compute_row(self, pairs: TextPairs, sentence: int, row: int) -> list[float]:
        shared = pairs.shared[:, sentence, row]  # (order, C)
        counts = np.empty((2 + len(shared), shared.shape[1]), int)
        both_lengths = (pairs.hypothesis_lengths[sentence], pairs.reference_lengths[sentence])
        for index, lengths in enumerate(both_lengths):
            counts[index] = lengths[row % len(lengths)]  # (C, 1): this row's; (1, C): those of all columns
        counts[2:] = shared
        return [
            self.scalar_formula(tuple(matches), length, reference_length)
            for length, reference_length, *matches in counts.T.tolist()
        ]

    def _grams(self, symbols: Sequence[Any]) -> Grams:
        return tuple(
            Counter(symbols[start : start + n] for start in range(len(symbols) - n + 1))
            for n in range(1, self.order + 1)
        )


def _count_shared(ours: Grams, theirs: Grams) -> tuple[int, ...]:
    """The number of shared n-grams of each order, clipped by the text that has fewer."""
    return tuple(
        sum(min(left[gram], right[gram]) for gram in left.keys() & right.keys())
        for left, right in zip(ours, theirs, strict=True)
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _characters(text: str) -> str:
    return "".join(text.split())


@lru_cache(maxsize=1 << 14)  # candidates that tie have the same counts
def _bleu(shared: tuple[int, ...], length: int, reference_length: int) -> float:
    """sacrebleu's sentence BLEU, from 0 to 100: exponential smoothing, effective order."""
    totals = [max(length - n, 0) for n in range(len(shared))]
    bleu = sentence_bleu_metric().compute_bleu(
        list(shared), totals, length, reference_length, smooth_method="exp", effective_order=True
    )
    return float(bleu.score)


@lru_cache(maxsize=1 << 14)
def _bleu_corpus(shared: tuple[int, ...], length: int, reference_length: int) -> float:
    """sacrebleu's corpus BLEU of a corpus of one text, from 0 to 100: 0 for fewer than four words."""
    totals = [max(length - n, 0) for n in range(len(shared))]
    bleu = sentence_bleu_metric().compute_bleu(
        list(shared), totals, length, reference_length, smooth_method="exp", effective_order=False
    )
    return float(bleu.score)


@lru_cache(maxsize=1 << 14)
def _bleu_nltk4(shared: tuple[int, ...], length: int, reference_length: int) -> float:
    """nltk's sentence BLEU with smoothing method 4, from 0 to 1.

    The k-th order without a match counts as ln(length) / (2ᵏ · 5) matches (Chen and Cherry, 2014; nltk 3.5
    and before had another formula). For a single word, whose logarithm is 0, only the unigram counts.
    """
    if not shared[0]:
        return 0.0
    logarithms, missed = [], 0
    for n, matches in enumerate(shared if length > 1 else shared[:1]):
        missed += not matches
        counted = matches or 1 / (2**missed * 5 / math.log(length))  # in nltk's order, for equal bits
        logarithms.append(math.log(counted / max(length - n, 1)) / len(shared))
    brevity = 1.0 if length > reference_length else math.exp(1 - reference_length / length)
    return brevity * math.exp(math.fsum(logarithms))


@lru_cache(maxsize=1 << 14)
def _chrf(shared: tuple[int, ...], length: int, reference_length: int) -> float:
    """sacrebleu's chrF, from 0 to 100: F₂ of mean precision and recall over the orders of both texts."""
    if not any(shared):
        return 0.0
    orders = min(len(shared), length, reference_length)
    precision = recall = 0.0
    for n, matches in enumerate(shared[:orders]):
        precision += matches / (length - n)
        recall += matches / (reference_length - n)
    precision, recall = precision / orders, recall / orders
    return 100 * (5 * precision * recall / (4 * precision + recall))


def _precision(shared: tuple[int, ...], length: int, reference_length: int) -> float:
    """Clipped unigram precision: the share of the hypothesis's symbols that the reference has, too."""
    return shared[0] / length if length else 0.0


def _bleu_corpus_signature() -> str:
    return sentence_bleu_signature().replace("eff:yes", "eff:no")


def _nltk4_signature() -> str:
    return "nrefs:1|case:mixed|tok:none|smooth:nltk-method4"


def _unigram_signature() -> str:
    return "nrefs:1|case:mixed|tok:none|clipped:yes"


UTILITIES: dict[str, NgramUtility] = {
    utility.name: utility
    for utility in (
        NgramUtility("bleu", split_13a, ngrams.number_words, 4, _bleu, ngrams.bleu, sentence_bleu_signature),
        NgramUtility(
            "bleu-corpus",
            split_13a,
            ngrams.number_words,
            4,
            _bleu_corpus,
            ngrams.bleu_corpus,
            _bleu_corpus_signature,
        ),
        NgramUtility(
            "bleu-nltk4", _words, ngrams.number_words, 4, _bleu_nltk4, ngrams.bleu_nltk4, _nltk4_signature
        ),
        NgramUtility(
            "chrf", _characters, ngrams.number_characters, 6, _chrf, ngrams.chrf, sentence_chrf_signature
        ),
        NgramUtility(
            "unigram", _words, ngrams.number_words, 1, _precision, ngrams.precision, _unigram_signature
        ),
    )
}
