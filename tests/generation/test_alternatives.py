"""Alternatives differ, the selected text comes first, and none is below the floor."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

import noise2text
from noise2text.core.errors import Problem
from noise2text.generation.alternatives import (
    draw_enough_candidates,
    rank_alternatives,
    rank_by_agreement,
    rank_by_score,
)
from noise2text.generation.config import (
    AutoregressiveGenerationConfig,
    DiffusionGenerationConfig,
    LengthPredictingGenerationConfig,
)
from noise2text.generation.mbr import MBR
from noise2text.generation.mbr_by_length import MBRByLength
from noise2text.generation.selection import BestScore, Candidate, Selector, WithoutCopies
from noise2text.generation.weighted_mbr import WeightedMBR
from noise2text.metrics.alternatives import normalize_words

Rank = Callable[..., list[int]]
both_rankings = pytest.mark.parametrize("rank", [rank_by_agreement, rank_by_score])
words = st.lists(st.sampled_from(["he", "she", "is", "was", "ill", "sick"]), max_size=4).map(" ".join)
some_candidates = st.lists(st.builds(Candidate, words, st.just(()), st.floats(-9, 0)), min_size=2, max_size=7)


def candidates(**scores: float) -> list[Candidate]:
    return [Candidate(text.replace("_", " "), (), score) for text, score in scores.items()]


@both_rankings
def test_texts_that_differ_in_case_and_signs_are_one(rank: Rank) -> None:
    texts = ["Hello, Tom!", "hello  tom", "HELLO TOM.", "Hi, Tom.", "…", "?"]
    some = [Candidate(text, (), -i / 10) for i, text in enumerate(texts)]
    found = [texts[i] for i in rank(some, 1, n=9, floor=math.inf)]
    assert found[:2] == ["hello  tom", "Hi, Tom."]
    assert sorted(found[2:]) == ["?", "…"]


@both_rankings
@given(some=some_candidates, n=st.integers(1, 6))
def test_the_selected_is_first_and_fewer_are_the_beginning_of_more(
    rank: Rank, some: list[Candidate], n: int
) -> None:
    few, many = rank(some, 1, n=n), rank(some, 1, n=n + 1)
    assert few[0] == 1
    assert many[:n] == few
    assert len({normalize_words(some[i].text) for i in many}) == len(many) <= n + 1


@both_rankings
@given(some=some_candidates)
def test_a_higher_floor_never_leaves_out_a_text(rank: Rank, some: list[Candidate]) -> None:
    few, many, all_of_them = (
        {normalize_words(some[i].text) for i in rank(some, 0, n=9, floor=floor)}
        for floor in (0.5, 9, math.inf)
    )
    assert few <= many <= all_of_them == {normalize_words(each.text) for each in some}


@both_rankings
def test_the_selected_text_may_be_below_the_floor(rank: Rank) -> None:
    some = candidates(he_is_ill=-0.1, he_is_sick=-0.1, zzz=-9.0)
    found = rank(some, 2, n=3)
    assert found[0] == 2
    assert set(found) == {0, 1, 2}


def test_by_score_the_others_fall() -> None:
    some = candidates(a=-0.5, b=-0.1, c=-0.9, d=-0.3)
    assert rank_by_score(some, 2, n=3) == [2, 1, 3]
    assert rank_by_score(some, 2, n=9) == [2, 1, 3, 0]


def test_by_score_none_is_below_the_floor_but_the_selected_one() -> None:
    some = candidates(a=-0.5, b=-0.1, c=-2.9, d=-0.3, e=-3.0)
    assert rank_by_score(some, 4, n=9, floor=0.2) == [4, 1, 3]
    assert rank_by_score(some, 4, n=9, floor=0.0) == [4, 1]
    impossible = candidates(a=-math.inf, b=-math.inf)
    assert rank_by_score(impossible, 1, n=9) == [1, 0]


def naive_ranking(texts: list[str], scores: list[float], selected: int, floor: float) -> list[int]:
    """The equations of the module with sacrebleu's sentence BLEU, loop by loop."""

    def bleu(i: int, j: int) -> float:
        return float(BLEU(effective_order=True).sentence_score(texts[i], [texts[j]]).score)

    weights = [math.exp(score) for score in scores]
    everyone = range(len(texts))
    agreement = [sum(weights[j] * bleu(i, j) for j in everyone) / sum(weights) for i in everyone]
    ranked = [selected]
    waiting = [i for i in everyone if i != selected and scores[i] >= max(scores) - floor]
    while waiting:
        value = {i: agreement[i] - 0.2 * max((bleu(i, j) + bleu(j, i)) / 2 for j in ranked) for i in waiting}
        ranked.append(max(waiting, key=value.__getitem__))
        waiting.remove(ranked[-1])
    return ranked


@pytest.mark.parametrize("floor", [0.8, 1.5, math.inf])
def test_agreement_is_sacrebleus_bleu_and_redundancy_counts_against_it(floor: float) -> None:
    texts = [
        *("Tom went swimming.", "Tom has gone swimming.", "Tom is gone swimming.", "Tom went for a swim."),
        *("Tom went out to swim with friends.", "Mary swims."),
    ]
    scores = [-0.2, -0.5, -0.9, -0.4, -1.5, -2.5]
    some = [Candidate(text, (), score) for text, score in zip(texts, scores, strict=True)]
    found = rank_by_agreement(some, 1, n=9, floor=floor)
    assert found == naive_ranking(texts, scores, 1, floor)
    shifted = [Candidate(each.text, (), each.score - 7) for each in some]  # scores count by their differences
    assert rank_by_agreement(shifted, 1, n=9, floor=floor) == found


def test_what_was_said_comes_after_what_was_not() -> None:
    """One of two texts of equal agreement repeats most of the selected one."""
    texts = ["she was very tired", "she was very sleepy", "he lost his keys", "he lost his key"]
    some = [Candidate(text, (), -1.0) for text in texts]
    order = {weight: rank_by_agreement(some, 0, n=3, redundancy_weight=weight) for weight in (0.0, 0.2)}
    assert [texts[i] for i in order[0.2]] == [texts[0], "he lost his keys", texts[1]]
    assert order[0.0] != order[0.2]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (MBR(), rank_by_agreement),
        (WeightedMBR(), rank_by_agreement),
        (WithoutCopies(MBR()), rank_by_agreement),
        (MBRByLength(), rank_by_agreement),
        (BestScore(), rank_by_score),
        (WithoutCopies(BestScore()), rank_by_score),
    ],
)
def test_what_selects_the_first_ranks_the_others(selector: Selector, expected: Rank) -> None:
    texts = ["she was ill", "she was so ill", "she was very ill", "a cat", "she was sick"]
    some = [Candidate(text, (0,), -i / 10) for i, text in enumerate(reversed(texts))]
    assert rank_by_agreement(some, 0, n=5) != rank_by_score(some, 0, n=5)
    assert rank_alternatives(selector, some, 0, n=5) == expected(some, 0, n=5)


def test_what_a_filter_leaves_out_is_no_alternative() -> None:
    texts = ["Elle est malade.", "elle est malade.", "She is ill.", "She is sick."]
    some = [Candidate(text, (0,), 0.0, source="Elle est malade.") for text in texts]
    for inner in (MBR(), BestScore()):
        selector = WithoutCopies(inner)
        assert sorted(rank_alternatives(selector, some, selector(some), n=4)) == [2, 3]
        assert len(rank_alternatives(inner, some, 0, n=4)) == 3


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (DiffusionGenerationConfig(), {"noise_beam": 20}),
        (LengthPredictingGenerationConfig(), {"noise_beam": 4}),
        (LengthPredictingGenerationConfig(noise_beam=9), {"noise_beam": 9}),
        (LengthPredictingGenerationConfig(length_beam=3), {"length_beam": 5, "noise_beam": 4}),
        (LengthPredictingGenerationConfig(length_beam=7), {"length_beam": 7, "noise_beam": 3}),
        (LengthPredictingGenerationConfig(length_beam=1), {"length_beam": 1, "noise_beam": 20}),
        (LengthPredictingGenerationConfig(length=7), {"noise_beam": 20}),
        (AutoregressiveGenerationConfig(), {"beam": 20}),
        (AutoregressiveGenerationConfig(samples=2), {"samples": 20}),
        (AutoregressiveGenerationConfig(beam=6, diverse_groups=3), {"beam": 21}),
    ],
)
def test_n_texts_need_more_candidates(config: object, expected: dict[str, int]) -> None:
    drawn = draw_enough_candidates(config, {}, n=5, floor=1.0)
    assert {name: getattr(drawn, name) for name in expected} == expected
    assert draw_enough_candidates(config, {}, n=1, floor=1.0) == config
    assert getattr(draw_enough_candidates(config, {}, n=100, floor=1.0), "length_beam", 5) <= 7
    assert draw_enough_candidates(config, {"noise_beam": 1}, n=5, floor=1.0) == config


@pytest.mark.parametrize(("n", "floor"), [(0, 1.0), (5, -1.0), (5, math.nan)])
def test_numbers_without_sense_are_refused(n: int, floor: float) -> None:
    with pytest.raises(Problem, match=r"must be at least 1|at least 0"):
        draw_enough_candidates(DiffusionGenerationConfig(), {}, n=n, floor=floor)


def test_a_model_returns_them() -> None:
    model = noise2text.load("de-en", device="cpu", precision="float32")
    output = model.generate(["Tom ist schwimmen gegangen.", ""], n=5, steps=3)
    assert output.alternatives[1] == []
    assert 1 < len(output.alternatives[0]) <= 5
    assert output.alternatives[0][0] == output.texts[0] == output[0].alternatives[0]
    assert len(output.candidates[0]) == 20
    assert set(output.alternatives[0]) <= set(output.candidates[0])
    one = model.generate(["Tom ist schwimmen gegangen."], steps=3)
    assert one.alternatives == [one.texts]
