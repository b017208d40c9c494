"""Diversity, against nltk's n-grams and BLEU, naive loops, and what DiffuSeq's script counts."""

from __future__ import annotations

from statistics import fmean

import nltk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from noise2text.metrics.diversity import DIVERSITY_METRICS, dist_1, div_4, self_bleu

from .corpora import scripts

SETS = [
    ["how can i make new friends", "how do i make some new friends", "what is the best way to do it"],
    ["a b c d e f", "a b c d e f", "f e d c b a"],
]
METRICS_BY_NAME = {kind.name: kind for kind in DIVERSITY_METRICS}
sets = st.lists(st.lists(scripts, min_size=1, max_size=4), min_size=1, max_size=5)


def test_dist_1_is_the_share_of_distinct_words_in_a_text() -> None:
    texts = ["a b a c", "the the the the", "one", "x y z"]
    grams = [list(nltk.ngrams(text.split(), 1)) for text in texts]
    score = dist_1(texts)
    assert score is not None
    assert score.score == pytest.approx(fmean(100 * len(set(own)) / len(own) for own in grams))
    assert score.signature == "tok:13a|case:mixed|counted:4"


def test_div_4_pools_the_candidates_of_a_source() -> None:
    pooled = [[gram for text in own for gram in nltk.ngrams(text.split(), 4)] for own in SETS]
    score = div_4(SETS)
    assert score is not None
    assert score.score == pytest.approx(fmean(100 * len(set(own)) / len(own) for own in pooled))


def test_self_bleu_is_the_mean_bleu_against_the_others() -> None:
    """sacrebleu's smoothing is nltk's third where a text has all four orders."""
    smooth = SmoothingFunction().method3
    by_source = []
    for own in SETS:
        words = [text.split() for text in own]
        by_source.append(
            fmean(
                sentence_bleu(words[:i] + words[i + 1 :], words[i], smoothing_function=smooth)
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
    assert self_bleu([["", " "], ["a b c d", "a b c d"]]) == self_bleu([["a b c d", "a b c d"]])
    assert dist_1(["", " "]) is None
    assert div_4([["short", "text"], ["a b c d", "a b c d"]]) == div_4([["a b c d", "a b c d"]])


def naive(candidates: list[list[str]]) -> dict[str, float | None]:
    """The definitions of the module, loop by loop."""
    split = Tokenizer13a()
    found: dict[str, list[float]] = {"dist_1": [], "div_4": [], "self_bleu": [], "distinct": [], "words": []}
    for texts in candidates:
        rows = [split(text).split() for text in texts]
        shares = [len(set(row)) / len(row) for row in rows if row]
        if shares:
            found["dist_1"].append(100 * sum(shares) / len(shares))
        found["words"].append(sum(len(text.split()) for text in texts) / len(texts))
        if len(texts) == 1:
            continue
        fours = [tuple(row[i : i + 4]) for row in rows for i in range(len(row)) if i + 4 <= len(row)]
        if fours:
            found["div_4"].append(100 * len(set(fours)) / len(fours))
        found["distinct"].append(100 * len({text.strip() for text in texts}) / len(texts))
        overlaps = []
        for place, text in enumerate(texts):
            others = [other for k, other in enumerate(texts) if k != place]
            overlaps.append(BLEU(effective_order=True).sentence_score(text, others).score)
        if any(text.strip() for text in texts):
            found["self_bleu"].append(sum(overlaps) / len(overlaps))
    return {name: sum(values) / len(values) if values else None for name, values in found.items()}


@given(sets)
@settings(deadline=None, max_examples=60)
def test_all_are_what_naive_loops_count(candidates: list[list[str]]) -> None:
    for name, expected in naive(candidates).items():
        score = METRICS_BY_NAME[name](candidates)
        assert (score is None) == (expected is None), name
        if score is not None:
            assert score.score == pytest.approx(expected, rel=1e-9, abs=1e-9), name


def diffuseq(texts: list[str]) -> dict[str, float]:
    """What DiffuSeq's script computes of the samples of one source, by nltk."""
    smooth = SmoothingFunction().method4
    pairs = [
        sentence_bleu([texts[j].split()], texts[i].split(), smoothing_function=smooth)
        for i in range(len(texts))
        for j in range(i + 1, len(texts))
    ]
    fours = [gram for text in texts for gram in nltk.ngrams(text.split(), 4)]
    ones = [list(nltk.ngrams(text.split(), 1)) for text in texts]
    return {
        "self_bleu_diffuseq": 100 * fmean(pairs),
        "div_4_diffuseq": 100 * len(set(fours)) / len(fours) if fours else 0,
        "dist_1_diffuseq": 100 * fmean(len(set(own)) / len(own) if own else 0 for own in ones),
    }


@given(st.lists(st.lists(scripts, min_size=3, max_size=3), min_size=1, max_size=5))
@settings(deadline=None, max_examples=60)
def test_what_is_named_after_diffuseq_is_what_its_script_counts(candidates: list[list[str]]) -> None:
    every = [diffuseq(texts) for texts in candidates]
    for name in every[0]:
        score = METRICS_BY_NAME[name](candidates)
        assert score is not None
        assert score.score == pytest.approx(fmean(one[name] for one in every), rel=1e-6, abs=1e-6), name
        assert score.signature.startswith("as:DiffuSeq|")


def test_by_hand() -> None:
    """Two sources: "a b a", twice and once changed; three words that never repeat, all alike."""
    candidates = [["a b a", "a b a ", "a b c"], ["x y z", "x y z", "x y z"]]
    by_name = {name: kind(candidates) for name, kind in METRICS_BY_NAME.items()}
    scores = {name: score.score for name, score in by_name.items() if score is not None}
    assert scores["dist_1"] == pytest.approx(100 * ((2 / 3 + 2 / 3 + 1) / 3 + 1) / 2)
    assert scores["distinct"] == pytest.approx(100 * (2 / 3 + 1 / 3) / 2)
    assert scores["words"] == 3
    assert "div_4" not in scores
    assert scores["div_4_diffuseq"] == 0


def test_a_lone_text_has_a_length_and_no_diversity() -> None:
    counted = {name for name, kind in METRICS_BY_NAME.items() if kind([["one two"]]) is not None}
    assert counted == {"dist_1", "words", "dist_1_diffuseq"}
    assert all(kind([[]]) is None for kind in DIVERSITY_METRICS)
