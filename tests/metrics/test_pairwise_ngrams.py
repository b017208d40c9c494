"""Counts for all pairs equal Counter's intersection, and utilities of all pairs nltk's and sacrebleu's."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, modified_precision, sentence_bleu
from sacrebleu.metrics import BLEU, CHRF

from noise2text.metrics import pairwise_ngrams as ngrams

Texts = list[list[tuple[str, ...]]]  # the words of each text of each sentence

# Few words, so that they come again and again.
texts = st.lists(st.sampled_from(["a", "b", "c", "שלום"]), max_size=9).map(tuple)
sentences = st.lists(st.lists(texts, min_size=1, max_size=5), min_size=1, max_size=4)


def count_ngrams(text: Sequence[Any], n: int) -> Counter[Any]:
    return Counter(text[start : start + n] for start in range(len(text) - n + 1))


def check_counts(
    sentences: Sequence[Sequence[Sequence[Any]]], order: int, number_symbols: ngrams.NumberSymbols
) -> None:
    counted = iter(ngrams.count_shared_ngrams(sentences, order, number_symbols=number_symbols))
    waiting = iter(sentences)
    for block in counted:
        for at, size in enumerate(block.sizes):
            texts = next(waiting)
            assert len(texts) == size
            np.testing.assert_array_equal(
                block.hypothesis_lengths[at, :size, 0], [len(text) for text in texts]
            )
            np.testing.assert_array_equal(
                block.reference_lengths[at, 0, :size], [len(text) for text in texts]
            )
            for n in range(order):
                expected = [
                    [(count_ngrams(ours, n + 1) & count_ngrams(theirs, n + 1)).total() for theirs in texts]
                    for ours in texts
                ]
                np.testing.assert_array_equal(block.shared[n, at, :size, :size], expected)
        assert not any(block.shared[:, at, size:].any() for at, size in enumerate(block.sizes))
    assert next(waiting, None) is None


@given(sentences=sentences)
@example(sentences=[[()]])
@example(sentences=[[(), ("a",)], [("a",)]])
@example(sentences=[[("a", "b", "a", "c"), ("a", "c")]])
@settings(deadline=None, max_examples=100)
def test_counts_equal_the_intersection_of_counters(sentences: Texts) -> None:
    check_counts(sentences, 4, ngrams.number_words)


@given(sentences=st.lists(st.lists(st.text(max_size=9), min_size=1, max_size=5), min_size=1, max_size=3))
@example(sentences=[["aaaa", "aa\ud800", "\ud800aa"], ["👍🏽👍", "👍👍🏽"]])
@settings(deadline=None, max_examples=100)
def test_counts_of_characters_too(sentences: list[list[str]]) -> None:
    check_counts(sentences, 6, ngrams.number_characters)


def random_sentences(count: int, texts: int, words: int) -> Texts:
    rng = random.Random(0)
    return [
        [tuple(rng.choices("abcdefgh", k=rng.randint(0, words))) for _ in range(texts)] for _ in range(count)
    ]


@pytest.mark.parametrize(("count", "words"), [(40, 5000), (3, 80_000)])
def test_counts_are_the_same_in_several_blocks_of_sentences(count: int, words: int) -> None:
    """A block has as many sentences as fit, or a single one that does not."""
    many = random_sentences(count, 2, words)
    blocks = list(ngrams.count_shared_ngrams(many, 2, number_symbols=ngrams.number_words))
    assert len(blocks) > 1
    check_counts(many, 2, ngrams.number_words)


@pytest.mark.parametrize("bits", [0, 8, 20, 48])
def test_symbols_may_have_large_numbers(bits: int) -> None:
    """Then few symbols fit into a key, and at last not even their position beside one."""

    def number_widely(block: Sequence[Any]) -> Any:
        return ngrams.number_words(block) << np.uint64(bits)

    check_counts(random_sentences(10, 7, 20), 4, number_widely)


def test_padding_is_bounded() -> None:
    """One sentence with many candidates does not make room for as many in all others."""
    pair = [("a",), ("b",)]
    many = [*[pair] * 1000, [("a",)] * 300, *[pair] * 1000]
    blocks = list(ngrams.count_shared_ngrams(many, 4, number_symbols=ngrams.number_words))
    assert sum(len(block.sizes) for block in blocks) == len(many)
    assert all(block.shared[0].size <= ngrams.BLOCK for block in blocks if len(block.sizes) > 1)


ORACLE_BLEU, ORACLE_CHRF = BLEU(effective_order=True), CHRF()


def oracle_nltk4(hypothesis: str, reference: str) -> float:
    smoothing = SmoothingFunction().method4
    return float(sentence_bleu([reference.split()], hypothesis.split(), smoothing_function=smoothing))


ORACLES: list[tuple[Any, int, Callable[[ngrams.TextPairs], Any], Callable[[str, str], float]]] = [
    (ngrams.number_words, 4, ngrams.bleu, lambda h, r: ORACLE_BLEU.sentence_score(h, [r]).score),
    (ngrams.number_words, 4, ngrams.bleu_nltk4, oracle_nltk4),
    (ngrams.number_characters, 6, ngrams.chrf, lambda h, r: ORACLE_CHRF.sentence_score(h, [r]).score),
    (
        ngrams.number_words,
        1,
        ngrams.precision,
        lambda h, r: float(modified_precision([r.split()], h.split(), 1)),
    ),
]


@pytest.mark.parametrize(("number_symbols", "order", "formula", "oracle"), ORACLES)
@given(sentences=sentences)
@example(sentences=[[(), ("a",), ("b",), ("a", "b"), ("a",) * 9]])
@settings(deadline=None, max_examples=60)
def test_all_pairs_equal_the_oracle_in_both_directions(
    number_symbols: ngrams.NumberSymbols,
    order: int,
    formula: Callable[[ngrams.TextPairs], Any],
    oracle: Callable[[str, str], float],
    sentences: Texts,
) -> None:
    joint = "" if number_symbols is ngrams.number_characters else " "
    lines = [[joint.join(text) for text in texts] for texts in sentences]
    (block,) = ngrams.count_shared_ngrams(
        lines if not joint else sentences, order, number_symbols=number_symbols
    )
    values, swapped = formula(block), formula(block.swapped)
    for at, texts in enumerate(lines):
        size = len(texts)
        expected = [[oracle(ours, theirs) for theirs in texts] for ours in texts]
        np.testing.assert_allclose(values[at, :size, :size], expected, rtol=1e-12)
        np.testing.assert_allclose(swapped[at, :size, :size], np.transpose(expected), rtol=1e-12)
        assert not values[at, size:].any()
        assert not values[at, :, size:].any()
