"""Alternatives differ, the selected text comes first, and none is below the floor."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noise2text
from noise2text.core.errors import Problem
from noise2text.generation.alternatives import draw_enough_candidates, rank_alternatives
from noise2text.generation.config import (
    AutoregressiveGenerationConfig,
    DiffusionGenerationConfig,
    LengthPredictingGenerationConfig,
)
from noise2text.generation.selection import Candidate


def candidates(**scores: float) -> list[Candidate]:
    return [Candidate(text.replace("_", " "), (), score) for text, score in scores.items()]


def test_texts_that_differ_in_case_and_signs_are_one() -> None:
    texts = ["Hello, Tom!", "hello  tom", "HELLO TOM.", "Hi, Tom.", "…", "?"]
    found = rank_alternatives([Candidate(text, (), -i / 10) for i, text in enumerate(texts)], 1, n=9)
    assert [texts[i] for i in found] == ["hello  tom", "Hi, Tom.", "…", "?"]


def test_the_selected_text_is_first_and_the_others_fall() -> None:
    some = candidates(a=-0.5, b=-0.1, c=-0.9, d=-0.3)
    assert rank_alternatives(some, 2, n=3) == [2, 1, 3]
    assert rank_alternatives(some, 2, n=9) == [2, 1, 3, 0]


def test_none_is_below_the_floor_but_the_selected_one() -> None:
    some = candidates(a=-0.5, b=-0.1, c=-2.9, d=-0.3, e=-3.0)
    assert rank_alternatives(some, 4, n=9, floor=0.2) == [4, 1, 3]
    assert rank_alternatives(some, 4, n=9, floor=0.0) == [4, 1]
    assert len(rank_alternatives(some, 4, n=9, floor=math.inf)) == 5
    impossible = candidates(a=-math.inf, b=-math.inf)
    assert rank_alternatives(impossible, 1, n=9) == [1, 0]


@given(st.lists(st.tuples(st.text("ab .", max_size=4), st.floats(-9, 0)), min_size=1), st.integers(1, 6))
def test_a_higher_floor_never_adds_a_text(rows: list[tuple[str, float]], n: int) -> None:
    some = [Candidate(text, (), score) for text, score in rows]
    few, many = (rank_alternatives(some, 0, n=n, floor=floor) for floor in (0.5, 2.0))
    assert len(few) <= len(many) <= n
    assert set(few[1:]) <= set(rank_alternatives(some, 0, n=len(some), floor=2.0))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (DiffusionGenerationConfig(), {"noise_beam": 20}),
        (LengthPredictingGenerationConfig(), {"noise_beam": 4}),
        (LengthPredictingGenerationConfig(noise_beam=9), {"noise_beam": 9}),
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
