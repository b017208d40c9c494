"""chrF, chrF++ and TER are sacrebleu's, and some of them are counted by hand."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import given, settings
from sacrebleu.metrics import CHRF, TER

from noise2text.metrics.chrf import chrf, chrf_plus_plus, ter

from .corpora import Corpus, corpora

ORACLES: list[tuple[Any, Any]] = [(chrf, CHRF), (chrf_plus_plus, lambda: CHRF(word_order=2)), (ter, TER)]


@pytest.mark.parametrize(("metric", "make"), ORACLES, ids=["chrf", "chrf++", "ter"])
@given(corpus=corpora)
@settings(deadline=None, max_examples=50)
def test_scores_are_sacrebleus(metric: Any, make: Any, corpus: Corpus) -> None:
    texts, references = [row[0] for row in corpus], [row[1] for row in corpus]
    oracle, streams = make(), list(zip_longest(*references))
    score = metric(texts, references)
    assert score.score == pytest.approx(oracle.corpus_score(texts, streams).score, rel=1e-12, abs=1e-12)
    assert score.signature == str(oracle.get_signature())


def test_ter_by_hand() -> None:
    """One word of five is replaced; then a shift of "d e" to the front is one edit of five words."""
    assert ter(["a b x d e"], [["a b c d e"]]).score == pytest.approx(20)
    assert ter(["d e a b c"], [["a b c d e"]]).score == pytest.approx(20)
    assert ter(["a b c d e"], [["a b c d e", "f"]]).score == 0
    assert ter(["a"], [[""]]).score == 100
    assert ter([""], [[""]]).score == 0
    assert ter.lower_is_better


def test_chrf_by_hand() -> None:
    """ "abc" and "abd": 2/3 of the characters, 1/2 of the pairs, 0/1 of the triples, both ways."""
    assert chrf(["abc"], [["abd"]]).score == pytest.approx(100 * (2 / 3 + 1 / 2) / 3)
    assert chrf(["👍🏽"], [["👍🏽"]]).score == 100
    assert chrf(["שלום עולם"], [["שלום"]]).score < 100
    assert chrf([""], [["a"]]).score == 0
