"""Every BLEU against what defines it: sacrebleu, nltk, and fairseq's counts written out."""

from __future__ import annotations

import math
from itertools import zip_longest
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu, sentence_bleu
from sacrebleu.metrics import BLEU

from noise2text.metrics.bleu import BLEU_METRICS, bleu, diffuseq_bleu, fairseq_bleu

from .corpora import Corpus, corpora

SETTINGS: dict[str, dict[str, Any]] = {
    "bleu": {},
    "bleu-none": {"tokenize": "none"},
    "bleu-intl": {"tokenize": "intl"},
    "bleu-char": {"tokenize": "char"},
    "bleu-lc": {"lowercase": True},
}
METRICS_BY_NAME = {metric.name: metric for metric in BLEU_METRICS}


@pytest.mark.parametrize("name", SETTINGS)
@given(corpus=corpora)
@settings(deadline=None, max_examples=40)
def test_corpus_bleu_is_sacrebleus(name: str, corpus: Corpus) -> None:
    texts, references = [row[0] for row in corpus], [row[1] for row in corpus]
    oracle = BLEU(**SETTINGS[name])
    streams: Any = list(zip_longest(*references))
    score = METRICS_BY_NAME[name](texts, references)
    assert score.score == pytest.approx(oracle.corpus_score(texts, streams).score, rel=1e-12, abs=1e-12)
    assert score.signature == str(oracle.get_signature())


def fairseq(texts: list[str], references: list[str]) -> float:
    """The sums of fairseq's scorer: a reference's n-grams are crossed off the text's, one by one."""
    matches, totals = [0] * 4, [0] * 4
    ours = sum(len(text.split()) for text in texts)
    theirs = sum(len(text.split()) for text in references)
    for text, reference in zip(texts, references, strict=True):
        for n in range(4):
            a, b = text.split(), reference.split()
            left = [" ".join(a[i : i + n + 1]) for i in range(len(a) - n)]
            totals[n] += len(left)
            for gram in (" ".join(b[i : i + n + 1]) for i in range(len(b) - n)):
                if gram in left:
                    left.remove(gram)
                    matches[n] += 1
    if not all(matches):
        return 0.0
    shortness = min(1, math.exp(1 - theirs / ours))
    return 100 * shortness * math.exp(sum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / 4)


@given(corpora)
@settings(deadline=None, max_examples=60)
def test_fairseqs_bleu_smooths_nothing(corpus: Corpus) -> None:
    texts, references = [row[0] for row in corpus], [row[1][0] for row in corpus]
    score = fairseq_bleu(texts, [[reference] for reference in references])
    assert score.score == pytest.approx(fairseq(texts, references), rel=1e-12)
    assert score.signature.startswith("as:fairseq|nrefs:1|case:mixed|eff:no|tok:none|smooth:none")


def test_fairseqs_bleu_is_nltks_of_a_corpus_with_several_references() -> None:
    texts = ["the cat sat on the mat today", "a dog barks at the big moon"]
    references = [["the cat sat on a mat today", "the cat is on the mat"], ["a dog barks at the moon"]]
    words = [[one.split() for one in own] for own in references]
    expected = 100 * corpus_bleu(words, [text.split() for text in texts])
    assert 0 < expected < 100
    assert fairseq_bleu(texts, references).score == pytest.approx(expected)


@given(corpora)
@settings(deadline=None, max_examples=60)
def test_diffuseqs_bleu_is_the_mean_of_nltks(corpus: Corpus) -> None:
    smooth = SmoothingFunction().method4
    expected = [
        sentence_bleu([one.split() for one in own], text.split(), smoothing_function=smooth)
        for text, own, _ in corpus
    ]
    score = diffuseq_bleu([row[0] for row in corpus], [row[1] for row in corpus])
    assert score.score == pytest.approx(100 * fmean(expected), rel=1e-9)
    assert "smooth:nltk-method4" in score.signature


def test_three_bleus_of_one_text_by_hand() -> None:
    """Matches 3/4, 1/3, 0/2, 0/1 of orders 1 to 4; the lengths are equal."""
    text, reference = ["a b c d"], [["a b x c"]]
    assert fairseq_bleu(text, reference).score == 0
    sacrebleu_statistics = (3 / 4 * 1 / 3 * (1 / 2) / 2 * (1 / 4) / 1) ** 0.25
    assert bleu(text, reference).score == pytest.approx(100 * sacrebleu_statistics)
    third, fourth = math.log(4) / (2 * 5), math.log(4) / (4 * 5)
    by_nltk = (3 / 4 * 1 / 3 * third / 2 * fourth / 1) ** 0.25
    assert diffuseq_bleu(text, reference).score == pytest.approx(100 * by_nltk)


@pytest.mark.parametrize("metric", BLEU_METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("text", ["", " ", "zzz"])
def test_nothing_and_one_wrong_word_score_nothing(metric: Any, text: str) -> None:
    assert metric([text], [["another", "third one"]]).score == 0


def test_the_tokenization_changes_the_number() -> None:
    text, reference = ["Hello, world (it is a test)!"], [["hello , world ( it is a test ) !"]]
    scores = {metric.name: metric(text, reference).score for metric in BLEU_METRICS}
    assert scores["bleu-lc"] == pytest.approx(100)
    assert scores["bleu-none"] < scores["bleu"] < scores["bleu-lc"]
