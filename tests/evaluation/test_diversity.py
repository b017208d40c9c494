"""Diversity, against nltk's n-grams and BLEU."""

from __future__ import annotations

from statistics import fmean

import pytest

from noise2text.evaluation.diversity import dist_1, div_4, self_bleu

SETS = [
    ["how can i make new friends", "how do i make some new friends", "what is the best way to do it"],
    ["a b c d e f", "a b c d e f", "f e d c b a"],
]


def test_dist_1_is_the_share_of_distinct_words_in_a_text() -> None:
    nltk = pytest.importorskip("nltk")
    texts = ["a b a c", "the the the the", "one", "x y z"]
    grams = [list(nltk.ngrams(text.split(), 1)) for text in texts]
    score = dist_1(texts)
    assert score is not None
    assert score.score == pytest.approx(fmean(100 * len(set(own)) / len(own) for own in grams))
    assert score.signature == "tok:13a|case:mixed|counted:4"


def test_div_4_pools_the_candidates_of_a_source() -> None:
    nltk = pytest.importorskip("nltk")
    pooled = [[gram for text in own for gram in nltk.ngrams(text.split(), 4)] for own in SETS]
    score = div_4(SETS)
    assert score is not None
    assert score.score == pytest.approx(fmean(100 * len(set(own)) / len(own) for own in pooled))


def test_self_bleu_is_the_mean_bleu_against_the_others() -> None:
    """sacrebleu's smoothing is nltk's third where a text has all four orders."""
    bleu_score = pytest.importorskip("nltk.translate.bleu_score")
    smooth = bleu_score.SmoothingFunction().method3
    by_source = []
    for own in SETS:
        words = [text.split() for text in own]
        by_source.append(
            fmean(
                bleu_score.sentence_bleu(words[:i] + words[i + 1 :], words[i], smoothing_function=smooth)
                for i in range(len(words))
            )
        )
    score = self_bleu(SETS)
    assert score is not None
    assert score.score == pytest.approx(100 * fmean(by_source), abs=1e-3)
    assert "smooth:exp" in score.signature


def test_candidates_that_are_all_alike_have_self_bleu_100() -> None:
    score = self_bleu([["one two three four five"] * 3])
    assert score is not None
    assert score.score == pytest.approx(100)


def test_a_lone_candidate_or_an_empty_text_is_not_counted() -> None:
    assert div_4([["a b c d e"], ["f g h i j"]]) is None
    assert self_bleu([["a b c d e"], []]) is None
    assert dist_1(["", " "]) is None
    assert div_4([["short", "text"], ["a b c d", "a b c d"]]) == div_4([["a b c d", "a b c d"]])
