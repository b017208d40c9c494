"""The number of n-grams that two texts share, for all pairs of texts of many sentences at once.

Two texts that have an n-gram a and b times share it min(a, b) times, and

    min(a, b) = Σ_{k ≥ 1} [a ≥ k]·[b ≥ k],

so with a row for each n-gram, and X_k[g, i] = 1 where text i has it at least k times, the shared n-grams of
all pairs are matrix products, Σ_k X_kᵀX_k. The rows come from sorting: an n-gram is a number whose digits
are its symbols, so one sort brings equal n-grams of every order together. Nothing is hashed, so nothing
collides. An n-gram that occurs only once is dropped, with all longer ones that start with it.

The formulas turn these counts into utilities. They are those of `mbr_utilities` for whole arrays, equal up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NumberSymbols",
    "TextPairs",
    "bleu",
    "bleu_nltk4",
    "chrf",
    "count_shared_ngrams",
    "number_characters",
    "number_words",
    "precision",
]

Floats = NDArray[np.float64]
Counts = NDArray[np.float32]  # exact up to 2²⁴, more than any text has
Integers = NDArray[np.int64]
Keys = NDArray[np.uint64]
Sentence = Sequence[Sequence[Any]]  # its texts; a text is a tuple of words or a string of characters
NumberSymbols = Callable[[Sequence[Sentence]], NDArray[Any]]

BLOCK = 1 << 16  # symbols and pairs that are counted at once, few enough for the CPU cache
BITS = 64  # of a key


@dataclass(frozen=True)
class TextPairs:
    """Every ordered pair of texts in each of S sentences, padded to C texts."""

    shared: Counts  # (order, S, C, C): clipped n-gram matches
    hypothesis_lengths: Floats  # (S, C, 1): the number of the hypothesis's symbols, 0 for padding
    reference_lengths: Floats  # (S, 1, C): the number of the reference's symbols
    sizes: Integers  # (S,): the number of texts of each sentence

    @property
    def swapped(self) -> TextPairs:
        """The same pairs with hypothesis and reference exchanged; the shared n-grams are symmetric."""
        return replace(
            self, hypothesis_lengths=self.reference_lengths, reference_lengths=self.hypothesis_lengths
        )


def count_shared_ngrams(
    sentences: Sequence[Sentence], order: int, *, number_symbols: NumberSymbols
) -> Iterator[TextPairs]:
    """All pairs of texts of each sentence, in blocks of sentences; `number_symbols` numbers their symbols."""
    for block in _split_into_blocks(sentences):
        texts = [len(text) for sentence in block for text in sentence]
        sizes = np.fromiter(map(len, block), np.int64, len(block))
        real = np.arange(sizes.max()) < sizes[:, None]  # (S, C)
        lengths = np.zeros(real.shape, np.int64)
        lengths[real] = texts
        shared = _count_shared(number_symbols(block).astype(np.uint64), lengths, order)
        symbols = lengths.astype(float)
        yield TextPairs(shared, symbols[:, :, None], symbols[:, None, :], sizes)


def number_words(block: Sequence[Sentence]) -> NDArray[Any]:
    """The number of every symbol of the texts; each sentence counts from 0."""
    numbers: list[int] = []
    for sentence in block:
        symbols = list(chain.from_iterable(sentence))
        known = dict(zip(dict.fromkeys(symbols), count(), strict=False))
        numbers += map(known.__getitem__, symbols)
    return np.array(numbers, np.uint64)


def number_characters(block: Sequence[Sentence]) -> NDArray[Any]:
    """The number of every character of the texts, counted from 0."""
    characters = "".join(chain.from_iterable(chain.from_iterable(block)))
    points = np.frombuffer(characters.encode("utf-32-le", "surrogatepass"), np.uint32)
    known = np.zeros(points.max(initial=0) + 1, bool)
    known[points] = True
    return (np.cumsum(known) - 1)[points]


def bleu(pairs: TextPairs) -> Floats:
    """sacrebleu's sentence BLEU."""
    product = half = np.ones(pairs.shared.shape[1:])
    for n, matches in enumerate(pairs.shared):
        has, left = matches > 0, pairs.hypothesis_lengths - n
        half = np.where(has, half, half / 2)
        counted = np.where(has, matches, half)
        product = np.where(left > 0, product * counted / np.maximum(left, 1), product)
    orders = np.clip(pairs.hypothesis_lengths, 1, len(pairs.shared))
    return 100 * _penalize_brevity(pairs, np.exp(np.log(product) / orders))


def bleu_corpus(pairs: TextPairs) -> Floats:
    """sacrebleu's corpus BLEU of one text: sentence BLEU, but 0 where a text has no n-grams of some order."""
    return np.where(pairs.hypothesis_lengths >= len(pairs.shared), bleu(pairs), 0)


def bleu_nltk4(pairs: TextPairs) -> Floats:
    """nltk's sentence BLEU with smoothing method 4."""
    product = np.ones(pairs.shared.shape[1:])
    smoothed = np.log(np.maximum(pairs.hypothesis_lengths, 2)) / 5 * product
    for n, matches in enumerate(pairs.shared):
        smoothed = np.where(matches > 0, smoothed, smoothed / 2)
        counted = np.where(matches > 0, matches, smoothed)
        has = (pairs.hypothesis_lengths > 1) | (n == 0)  # of a single word, only the unigram counts
        product = np.where(has, product * counted / np.maximum(pairs.hypothesis_lengths - n, 1), product)
    return _penalize_brevity(pairs, np.exp(np.log(product) / len(pairs.shared)))


def chrf(pairs: TextPairs) -> Floats:
    """sacrebleu's chrF."""
    precision, recall = np.zeros((2, *pairs.shared.shape[1:]))
    for n, matches in enumerate(pairs.shared):  # orders that one text lacks have no matches
        precision += matches / np.maximum(pairs.hypothesis_lengths - n, 1)
        recall += matches / np.maximum(pairs.reference_lengths - n, 1)
    orders = np.clip(np.minimum(pairs.hypothesis_lengths, pairs.reference_lengths), 1, len(pairs.shared))
    denominator = np.where(precision > 0, 4 * precision + recall, 1)
    return 500 * precision * recall / (denominator * orders)


def precision(pairs: TextPairs) -> Floats:
    """Clipped unigram precision."""
    return pairs.shared[0] / np.maximum(pairs.hypothesis_lengths, 1)


def _penalize_brevity(pairs: TextPairs, precisions: Floats) -> Floats:
    """BLEU: the mean precision times the brevity penalty; 0 for texts that share nothing."""
    penalty = np.exp(np.minimum(1 - pairs.reference_lengths / np.maximum(pairs.hypothesis_lengths, 1), 0))
    return np.where(pairs.shared[0] > 0, penalty * precisions, 0)


def _split_into_blocks(sentences: Sequence[Sentence]) -> Iterator[list[Sentence]]:
    """Blocks of sentences with at most BLOCK symbols and padded pairs, or of a single sentence."""
    block: list[Sentence] = []
    symbols = width = 0
    for sentence in sentences:
        symbols, width = symbols + sum(map(len, sentence)), max(width, len(sentence))
        if block and symbols + (len(block) + 1) * width**2 > BLOCK:
            yield block
            block, symbols, width = [], sum(map(len, sentence)), len(sentence)
        block.append(sentence)
    if block:
        yield block


def _count_shared(symbols: Keys, lengths: Integers, order: int) -> Counts:
    """The shared n-grams (order, S, C, C), from the symbols of all texts and the texts' lengths (S, C)."""
    sentences, width = lengths.shape
    shared = np.zeros((order, sentences, width, width), np.float32)
    sizes = lengths.ravel() + 1  # each text ends with a terminator, so that no n-gram spans two texts
    positions = np.arange(len(symbols) + len(sizes))
    sentence, column = np.divmod(np.repeat(np.arange(len(sizes)), sizes), width)  # of each symbol
    left = np.repeat(sizes.cumsum() - 1, sizes) - positions  # symbols up to the end of its text
    terminated = np.zeros(len(positions) + order, np.uint64)
    terminated[:-order][left > 0] = symbols + np.uint64(1)
    grams, n = sentence.astype(np.uint64), 0  # no n-gram is shared between sentences
    while n < order and len(positions):
        positions, keys, shifts = _sort_by_ngram(positions, grams, terminated, range(n, order))
        for shift in shifts:
            first, several = _find_runs(keys >> shift)
            several &= left[positions] > n
            positions, keys, first = positions[several], keys[several], first[several]
            group = np.cumsum(first) - 1
            owner = sentence[positions[first]]
            counts = np.bincount(group * width + column[positions], minlength=len(owner) * width)
            _write_products(counts.reshape(-1, width), owner, out=shared[n])
            n += 1
        grams = group.astype(np.uint64)
    own = np.arange(width)
    shared[:, :, own, own] = np.maximum(lengths - np.arange(order)[:, None, None], 0)
    return shared


def _sort_by_ngram(
    positions: Integers, grams: Keys, symbols: Keys, orders: range
) -> tuple[Integers, Keys, list[np.uint64]]:
    """The positions sorted by the n-grams that start there, these as keys, and each order's bit shift.

    A key is an n-gram's number followed by as many of the next symbols as fit into its bits.
    """
    largest = int(symbols.max(initial=1)), int(grams.max(initial=1)), len(symbols)
    digit, number, tail = (value.bit_length() for value in largest)
    taken = min(len(orders), max(1, (BITS - number - tail) // digit))
    digits = np.zeros(len(symbols) - orders.stop, np.uint64)  # of the key at every position
    for n in orders[:taken]:
        digits = (digits << np.uint64(digit)) | symbols[n : n + len(digits)]
    keys = (grams << np.uint64(digit * taken)) | digits[positions]
    shifts = [np.uint64(digit * (taken - 1 - n)) for n in range(taken)]
    if number + digit * taken + tail > BITS:
        order = np.argsort(keys)
        return positions[order], keys[order], shifts
    packed = (keys << np.uint64(tail)) | positions.astype(np.uint64)  # sorting values is faster than argsort
    packed.sort()
    return (packed & np.uint64((1 << tail) - 1)).astype(np.int64), packed >> np.uint64(tail), shifts


def _find_runs(keys: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of the sorted keys are the first of a run of equal keys, and which are in a run of several."""
    ends = np.ones(len(keys) + 1, bool)
    np.not_equal(keys[1:], keys[:-1], out=ends[1:-1])
    return ends[:-1], ~(ends[:-1] & ends[1:])


def _write_products(counts: Integers, owner: Integers, *, out: Counts) -> None:
    """Write Σ_k X_kᵀX_k of each sentence's n-grams to `out` (S, C, C).

    The counts are (G, C); the owner of an n-gram is its sentence, and n-grams are sorted by it.
    """
    rows: list[Counts] = []
    owners: list[Integers] = []
    while counts.max(initial=0) > len(rows):
        x = (counts > len(rows)).astype(np.float32)
        several = np.einsum("gc->g", x) > 1  # an n-gram of a single text is in no pair
        counts, owner = counts[several], owner[several]
        rows.append(x[several])
        owners.append(owner)
    if len(rows) > 1:
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        rows, owner = [np.concatenate(rows)[order]], owner[order]
    starts = np.flatnonzero(_find_runs(owner)[0]).tolist()
    for x in rows:
        for start, end in pairwise([*starts, len(x)]):
            own = x[start:end]
            np.dot(own.T, own, out=out[owner[start]])  # half the overhead of matmul
