"""Rank correlations are scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, rankdata, spearmanr

from noise2text.experiments.rank_correlation import kendall, rank_from_best, ranks, spearman

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12)


@given(PAIRS)
def test_correlations_are_scipys_ties_included(pairs: list[tuple[int, int]]) -> None:
    first, second = ([float(pair[side]) for pair in pairs] for side in (0, 1))
    assert ranks(first) == rankdata(first).tolist()
    if len(set(first)) < 2 or len(set(second)) < 2:
        assert spearman(first, second) is None
        assert kendall(first, second) is None
        return
    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-9)
    assert kendall(first, second) == pytest.approx(kendalltau(first, second).statistic, abs=1e-9)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=10), st.booleans())
def test_places_count_from_the_best(values: list[int], lower_is_better: bool) -> None:
    expected = rankdata([value if lower_is_better else -value for value in values], method="min")
    assert rank_from_best(values, lower_is_better=lower_is_better) == expected.tolist()


def test_the_same_order_is_one_and_the_reverse_minus_one() -> None:
    values = [0.07, 27.89, 34.48, 30.14]
    assert math.isclose(spearman(values, [1, 5, 80, 7]) or 0, 1)
    assert math.isclose(kendall(values, [-1, -5, -80, -7]) or 0, -1)
