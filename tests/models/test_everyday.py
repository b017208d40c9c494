"""The list of everyday sentences is well formed, and the shipped model answers many of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import noise2text

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from everyday import HALVES, expand, normalize, read_sentences  # type: ignore[import-not-found]


def test_there_are_200_sentences_with_accepted_answers_in_two_halves() -> None:
    sentences = read_sentences()
    assert len({each.source for each in sentences}) == len(sentences) == 200
    assert len(sentences[HALVES["tune"]]) == len(sentences[HALVES["held"]]) == 100
    for each in sentences:
        assert each.answers
        assert not [answer for answer in each.answers if set("()|;") & set(answer)]
        assert not each.accepts(each.source)


def test_patterns_stand_for_all_their_texts() -> None:
    assert expand("(a|b (c|d)|) e") == ["a e", "b c e", "e", "a e", "b d e", "e"]
    assert normalize("It’s  Cold!") == normalize("it's cold.") == "it's cold"
    assert normalize("Please, sit") == normalize("please sit")
    assert normalize("Later. 😀") == normalize("later 😀")
    assert normalize("Hello. I'm Tom.") != normalize("Hello I'm Tom.")


@pytest.mark.long
def test_the_shipped_model_answers_more_everyday_sentences_with_its_preparation() -> None:
    chosen = [
        each
        for each in read_sentences()
        if any(character.isdigit() or character == "@" for character in each.source)
    ]
    model = noise2text.load("de-en", device="cpu", precision="float32")
    few: dict[str, Any] = {"steps": 5, "eta": 0.0, "solver": "multistep"}
    settings_of_both: list[dict[str, Any]] = [{}, {"preprocess": ""}]
    preprocessed, plain = (
        model.generate([each.source for each in chosen], **few, **settings).texts
        for settings in settings_of_both
    )
    right = [
        sum(each.accepts(text) for each, text in zip(chosen, texts, strict=True))
        for texts in (preprocessed, plain)
    ]
    assert right[0] > right[1]
    assert right[0] >= len(chosen) / 2
