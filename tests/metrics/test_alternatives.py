"""What several texts per source are worth: laws, and sacrebleu's sentence chrF as the oracle."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF

from noise2text.core.errors import Problem
from noise2text.metrics.alternatives import measure_alternatives, normalize_words
from noise2text.metrics.evaluate import evaluate_alternatives

ALTERNATIVES = [
    ["He is ill.", "He is sick.", "He feels bad."],
    ["Where's the station?", "Which way is it?"],
]
REFERENCES = [["He's sick.", "he is sick", "He is ill!"], ["Where is the station?"]]

words = st.lists(st.sampled_from(["he", "she", "is", "was", "ill", "sick"]), min_size=1, max_size=4)
texts = words.map(" ".join)
ranked = st.lists(texts, min_size=2, max_size=5, unique=True)
references = st.lists(texts, min_size=1, max_size=3)


def scores(alternatives: list[list[str]], references: list[list[str]]) -> dict[str, float]:
    found = measure_alternatives(alternatives, references)
    return {name: numbers.score for name, numbers in found.items()}


def test_quality_is_the_mean_of_sacrebleus_sentence_chrf() -> None:
    found = scores(ALTERNATIVES, REFERENCES)
    expected = [
        [CHRF().sentence_score(text, own).score for text in row]
        for row, own in zip(ALTERNATIVES, REFERENCES, strict=True)
    ]
    assert found["quality_1"] == pytest.approx(fmean(row[0] for row in expected))
    assert found["quality_2"] == pytest.approx(fmean(row[1] for row in expected))
    assert found["quality_3"] == pytest.approx(expected[0][2])  # one source has a third text
    assert found["best"] == pytest.approx(fmean(map(max, expected)))


def test_right_texts_are_references_but_for_case_and_signs() -> None:
    found = scores(ALTERNATIVES, REFERENCES)
    assert found["right"] == 1.0  # two of the first source, none of the second
    assert found["nearly_right"] == 1.5  # "Where's the station?"
    assert found["different"] == 2.5
    assert CHRF().sentence_score("Where's the station?", ["Where is the station?"]).score >= 70


def test_signatures_say_what_was_compared_and_counted() -> None:
    found = measure_alternatives(ALTERNATIVES, REFERENCES)
    assert found["quality_3"].signature.startswith("n:3|nrefs:var|mean:sentences|case:mixed|eff:yes|nc:6|")
    assert found["quality_3"].signature.endswith("|counted:1")
    assert found["right"].signature == "n:3|nrefs:var|case:lc|punct:no|counted:2"


@given(ranked, references)
@settings(max_examples=50, deadline=None)
def test_counts_are_ordered_and_the_best_is_the_highest(own: list[str], right: list[str]) -> None:
    found = scores([own], [right])
    assert found["right"] <= found["nearly_right"] <= found["different"] == len(own)
    assert found["best"] == max(found[f"quality_{k + 1}"] for k in range(len(own)))


@given(ranked, references)
@settings(max_examples=50, deadline=None)
def test_a_text_in_other_clothes_changes_nothing_but_n(own: list[str], right: list[str]) -> None:
    assert scores([[*own, f" {own[0].upper()}!"]], [right]) == scores([own], [right])


@given(ranked, references, texts)
@settings(max_examples=50, deadline=None)
def test_more_texts_and_more_references_never_lose(own: list[str], right: list[str], more: str) -> None:
    before = scores([own], [right])
    for after in (scores([[*own, more]], [right]), scores([own], [[*right, more]])):
        assert all(after[name] >= before[name] for name in ("best", "right", "nearly_right", "different"))


@given(ranked, references)
@settings(max_examples=50, deadline=None)
def test_the_order_decides_only_which_is_the_kth(own: list[str], right: list[str]) -> None:
    before, after = scores([own], [right]), scores([own[::-1]], [right])
    for name in ("best", "right", "nearly_right", "different"):
        assert after[name] == before[name]
    assert after["quality_1"] == before[f"quality_{len(own)}"]


def test_texts_without_words_are_compared_by_their_signs() -> None:
    assert normalize_words(" ? !") == "?!"
    assert scores([["?", "!", " ?"]], [["!"]])["different"] == 2


def test_one_text_per_source_has_no_alternatives() -> None:
    assert measure_alternatives([["a"], ["b"]], [["a"], ["b"]]) == {}


def test_intervals_contain_the_score_and_counts_must_match() -> None:
    found = evaluate_alternatives(ALTERNATIVES * 20, REFERENCES * 20, n_resamples=200)
    assert found["right"]["interval"]["low"] < found["right"]["score"] < found["right"]["interval"]["high"]
    with pytest.raises(Problem, match="do not pair up"):
        evaluate_alternatives(ALTERNATIVES, REFERENCES[:1])
