"""Intervals equal rescoring every resample, scipy's bootstrap in law, and sacrebleu's resamples."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from scipy import stats

from noise2text.core.errors import Problem
from noise2text.metrics.bootstrap import SEED, bootstrap_scores, confidence_interval
from noise2text.metrics.evaluate import METRICS_BY_NAME, bleu, exact_match
from noise2text.metrics.metric import mean_statistics

CHANCE = random.Random(0)
WORDS = ["the", "a", "small", "red", "green", "house", "tree", "stands", "falls", "near", "behind", "bridge"]


def changed(text: str) -> str:
    return " ".join(word if CHANCE.random() < 0.8 else CHANCE.choice(WORDS) for word in text.split())


SOURCES = [" ".join(CHANCE.choices(WORDS, k=CHANCE.randint(1, 9))) for _ in range(40)]
REFERENCES = [[changed(text) for _ in range(CHANCE.randint(1, 3))] for text in SOURCES]
TEXTS = [changed(text) for text in SOURCES]


@pytest.mark.parametrize("name", METRICS_BY_NAME)
def test_a_draw_scores_what_its_sentences_score(name: str) -> None:
    """The sums of a draw against the metric called on the drawn texts themselves."""
    metric = METRICS_BY_NAME[name]
    drawn = bootstrap_scores(metric.statistics(TEXTS, REFERENCES, SOURCES), n_resamples=4)
    places = np.random.default_rng(SEED).choice(len(TEXTS), size=(4, len(TEXTS)), replace=True)
    for score, own in zip(drawn, places, strict=True):
        texts, references = [TEXTS[place] for place in own], [REFERENCES[place] for place in own]
        again = metric(texts, references, [SOURCES[place] for place in own])
        assert score == pytest.approx(again.score, rel=1e-9)


@pytest.mark.parametrize(("name", "make"), [("bleu", BLEU), ("chrf", CHRF), ("ter", TER)])
def test_the_draws_are_sacrebleus(name: str, make: Any) -> None:
    texts, references = TEXTS, [[own[0] for own in REFERENCES]]
    theirs = make().corpus_score(texts, references, n_bootstrap=200)
    drawn = bootstrap_scores(
        METRICS_BY_NAME[name].statistics(texts, [[own[0]] for own in REFERENCES]), n_resamples=200
    )
    ordered = np.sort(drawn)
    assert drawn.mean() == pytest.approx(theirs._mean, rel=1e-5)
    assert (ordered[194] - ordered[5]) / 2 == pytest.approx(theirs._ci, rel=1e-4)


def test_the_interval_of_a_mean_is_scipys_in_law() -> None:
    values = np.random.default_rng(1).gamma(2.0, size=300)
    ours = confidence_interval(mean_statistics(values.tolist(), "", scale=1), n_resamples=20_000)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=2)
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.03 * width)


def test_the_interval_of_bleu_is_scipys_in_law() -> None:
    statistics = bleu.statistics(TEXTS, REFERENCES)

    def score(places: Any, axis: int) -> Any:
        return statistics.formula(statistics.rows[places].sum(axis=-2))

    ours = confidence_interval(statistics, n_resamples=10_000)
    theirs = stats.bootstrap(
        (np.arange(len(TEXTS)),), score, n_resamples=10_000, method="percentile", rng=3, vectorized=True
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.05 * width)


def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    generator = np.random.default_rng(4)
    truth, hits = 0.3, 0
    for _ in range(300):
        found = confidence_interval(
            mean_statistics((generator.random(100) < truth).tolist(), ""), n_resamples=300
        )
        hits += found.low <= 100 * truth <= found.high
    assert 0.90 < hits / 300 < 0.985


@pytest.mark.parametrize(("sentences", "resamples"), [(600_000, 10), (5_000_000, 2)])
def test_draws_do_not_depend_on_how_many_fit_in_memory(sentences: int, resamples: int) -> None:
    """Of 600,000 sentences six resamples are drawn at once, of five million one."""
    values = np.random.default_rng(1).random(sentences)
    drawn = bootstrap_scores(mean_statistics(values.tolist(), "", scale=1), n_resamples=resamples)
    generator = np.random.default_rng(SEED)
    expected = [values[generator.choice(sentences, size=sentences)].mean() for _ in range(resamples)]
    assert drawn == pytest.approx(expected)


def test_scores_that_are_all_alike_have_an_interval_of_no_width() -> None:
    found = confidence_interval(exact_match.statistics(["a", "b"], [["a"], ["b"]]))
    assert (found.low, found.high) == (100, 100)
    assert found.signature == "percentile|bs:1000|seed:12345"


def test_a_thousand_draws_of_two_thousand_sentences_take_a_moment() -> None:
    rows = np.random.default_rng(0).integers(1, 20, size=(2000, 10)).astype(float)
    statistics = bleu.statistics(["a"], [["a"]])
    begun = time.perf_counter()
    confidence_interval(type(statistics)(rows, statistics.formula, ""))
    assert time.perf_counter() - begun < 2


def test_no_draws_are_a_mistake() -> None:
    with pytest.raises(Problem, match="at least 1 resample"):
        confidence_interval(bleu.statistics(["a"], [["a"]]), n_resamples=0)
