"""ROUGE is rouge-score's; torchmetrics' ROUGE-L is the same of one reference, but not of several."""

from __future__ import annotations

import sys
from functools import cache
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from rouge_score.rouge_scorer import RougeScorer

from noise2text.core.errors import Problem
from noise2text.metrics.rouge import ROUGE_METRICS, rouge_l, rouge_l_torchmetrics

from .corpora import Corpus, corpora

KINDS = {"rouge-1": "rouge1", "rouge-2": "rouge2", "rouge-l": "rougeL"}


@pytest.mark.parametrize("metric", ROUGE_METRICS[:3], ids=lambda metric: metric.name)
@given(corpus=corpora)
@settings(deadline=None, max_examples=40)
def test_scores_are_rouge_scores_best(metric: Any, corpus: Corpus) -> None:
    kind = KINDS[metric.name]
    scorer = RougeScorer([kind])
    expected = [max(scorer.score(one, text)[kind].fmeasure for one in own) for text, own, _ in corpus]
    score = metric([row[0] for row in corpus], [row[1] for row in corpus])
    assert score.score == pytest.approx(100 * fmean(expected))
    assert score.signature.startswith(f"{kind}|nrefs:")


@given(corpora)
@settings(deadline=None, max_examples=60)
def test_torchmetrics_is_the_same_with_one_reference(corpus: Corpus) -> None:
    texts, references = [row[0] for row in corpus], [row[1][:1] for row in corpus]
    score = rouge_l_torchmetrics(texts, references)
    assert score.score == pytest.approx(rouge_l(texts, references).score)
    assert "as:torchmetrics<1.6|" in score.signature


def longest(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """The longest common subsequence, from its recursion."""

    @cache
    def of(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return 0
        return 1 + of(i + 1, j + 1) if a[i] == b[j] else max(of(i + 1, j), of(i, j + 1))

    return of(0, 0)


@given(corpora)
@settings(deadline=None, max_examples=60)
def test_of_several_references_torchmetrics_takes_the_best_by_rouge_1(corpus: Corpus) -> None:
    scorer, expected = RougeScorer(["rouge1"]), []
    for text, own, _ in corpus:
        by_words = [scorer.score(one, text)["rouge1"].fmeasure for one in own]
        chosen = own[by_words.index(max(by_words))]
        a, b = (tuple(scorer._tokenizer.tokenize(side)) for side in (text, chosen))
        shared = longest(a, b)
        expected.append(2 * shared / (len(a) + len(b)) if shared else 0.0)
    score = rouge_l_torchmetrics([row[0] for row in corpus], [row[1] for row in corpus])
    assert score.score == pytest.approx(100 * fmean(expected))


def test_the_two_rouge_ls_by_hand() -> None:
    """ "d c b a" shares all words but no order, so torchmetrics takes it: LCS 1 of 4, against 3 of 4."""
    text, references = ["a b c d"], [["d c b a", "a b c x"]]
    assert rouge_l(text, references).score == pytest.approx(75)
    assert rouge_l_torchmetrics(text, references).score == pytest.approx(25)


def test_other_scripts_have_no_words_for_rouge() -> None:
    for metric in ROUGE_METRICS:
        assert metric(["שלום עולם"], [["שלום עולם"]]).score == 0
        assert metric([""], [["a"]]).score == 0
        assert "tok:a-z0-9" in metric(["a"], [["a"]]).signature


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(Problem, match=r"pip install 'noise2text\[metrics\]'"):
        rouge_l(["a"], [["a"]])
    assert rouge_l_torchmetrics(["a"], [["a"]]).score == 100
