"""The nearest row is the one that counting all n-grams finds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.util import ngrams

from noise2text.data.ragged import RaggedRows
from noise2text.models.ngram_index import ORDER, NgramIndex

ROW = st.lists(st.integers(0, 4), min_size=1, max_size=8)


def counted(row: list[int]) -> Counter[tuple[int, ...]]:
    return Counter(gram for n in range(1, ORDER + 1) for gram in ngrams(row, n))


def similarity(a: list[int], b: list[int]) -> float:
    ours, theirs = counted(a), counted(b)
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total())


@settings(max_examples=100, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=8), ROW, st.integers(1, 3))
def test_neighbors_are_those_of_counting_every_ngram(
    corpus: list[list[int]], query: list[int], count: int
) -> None:
    chosen, scores = NgramIndex(RaggedRows.from_lists(corpus)).search(query, count)
    expected = sorted(range(len(corpus)), key=lambda i: -similarity(corpus[i], query))[:count]
    assert chosen.tolist() == expected
    assert scores.tolist() == [similarity(corpus[i], query) for i in expected]


def test_a_row_is_its_own_nearest_neighbor_and_an_unknown_one_has_none() -> None:
    corpus = NgramIndex(RaggedRows.from_lists([[1, 2], [3, 4, 5], [3, 4, 6]]))
    assert [each.tolist() for each in corpus.search([3, 4, 6], 1)] == [[2], [1.0]]
    assert corpus.search([9, 9], 1)[1].tolist() == [0.0]
