"""Buckets keep equal lengths together and are nearly equal; BLEU in them is sacrebleu's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from noise2text.analysis.bleu_by_length import buckets
from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.finding import to_svg
from noise2text.analysis.inputs import Inputs
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.data.tokenizer import learn_characters

analyze_lengths = ANALYSES["lengths"]

PAIRS = [
    Pair("a " * length, f"the {length} cats sat on the mat today") for length in (1, 1, 2, 3, 4, 5, 6, 7)
]
GOOD = [pair.trg for pair in PAIRS]
BAD = [text if place < 4 else text[:-6] for place, text in enumerate(GOOD)]


def test_buckets_by_hand() -> None:
    assert buckets([3, 1, 2, 4], 2).tolist() == [1, 0, 0, 1]
    assert buckets([5, 5, 5], 4).tolist() == [0, 0, 0]
    assert buckets([1, 2, 2, 2, 2, 3], 3).tolist() == [0, 1, 1, 1, 1, 2]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60), st.integers(1, 8))
def test_buckets_go_up_with_length_and_are_nearly_equal(source_lengths: list[int], count: int) -> None:
    numbers = buckets(source_lengths, count)
    assert sorted(set(numbers.tolist())) == list(range(max(numbers) + 1))
    assert max(numbers) < count
    for one, its in zip(source_lengths, numbers, strict=True):
        for other, theirs in zip(source_lengths, numbers, strict=True):
            assert (one == other) <= (its == theirs)
            assert (one < other) <= (its <= theirs)
    most = max(Counter(source_lengths).values())
    assert max(Counter(numbers.tolist()).values()) <= len(source_lengths) / count + most


def test_bleu_in_each_bucket_is_sacrebleus() -> None:
    (found,) = analyze_lengths(Inputs(outputs={"bad": BAD}, pairs=PAIRS, options={"buckets": 2}))
    assert [(row["shortest"], row["longest"], row["sentences"]) for row in found.rows] == [
        (1, 3, 4),
        (4, 7, 4),
    ]
    for row, inside in zip(found.rows, (slice(0, 4), slice(4, 8)), strict=True):
        assert row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(BAD[inside], [GOOD[inside]]).score)
    assert "version" in found.signature
    assert "length:words" in found.signature


def test_several_systems_are_compared_by_their_slopes() -> None:
    found = analyze_lengths(Inputs(outputs={"good": GOOD, "bad": BAD}, pairs=PAIRS, options={"buckets": 2}))
    assert [finding.name for finding in found] == ["bleu-by-length", "relative-difference", "slope-tests"]
    svg = to_svg(found[0]) or ""
    for words in ("length of the source in words", "BLEU", "good", "bad", "1–3", "4–7"):
        assert f">{words}<" in svg


def test_sources_are_measured_as_asked(tmp_path: Path) -> None:
    learn_characters(["a b"]).save(tmp_path / "tokenizer.json")
    longest = {}
    for unit in ("words", "characters", "tokens"):
        inputs = Inputs(models=[tmp_path], outputs={"x": GOOD}, pairs=PAIRS, options={"unit": unit})
        (found,) = analyze_lengths(inputs)
        longest[unit] = found.rows[-1]["longest"]
    assert longest["words"] == 7
    assert longest["characters"] == longest["tokens"] == 14
    assert found.signature.endswith(f"length:tokens of {tmp_path.name}")


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (Inputs(outputs={"x": GOOD[1:]}, pairs=PAIRS), "x do not match, 7 texts to 8 pairs"),
        (
            Inputs(outputs={"x": GOOD}, pairs=PAIRS, options={"unit": "tokens"}),
            "give the folder of the model",
        ),
        (Inputs(outputs={"x": GOOD}, pairs=PAIRS, options={"unit": "miles"}), "unit is one of words"),
        (Inputs(outputs={"x": GOOD}, pairs=PAIRS, options={"buckets": 0}), "buckets must be at least 1"),
        (
            Inputs(outputs={"x": GOOD}, pairs=PAIRS, options={"confidence": 1}),
            "confidence must be above 0 and below 1",
        ),
        (
            Inputs(models=[Path("x")], outputs={"x": GOOD}, pairs=PAIRS, options={"unit": "tokens"}),
            "tokenizer.json",
        ),
        (Inputs(outputs={"x": GOOD[:1] * 3, "y": BAD[:1] * 3}, pairs=PAIRS[:1] * 3), "same x"),
    ],
)
def test_mistakes_are_told_in_a_sentence(inputs: Inputs, words: str) -> None:
    with pytest.raises(Problem, match=words):
        analyze_lengths(inputs)


def test_the_numbers_do_not_depend_on_the_order_of_the_sentences() -> None:
    order = np.random.default_rng(0).permutation(len(PAIRS))
    mixed = {name: [texts[i] for i in order] for name, texts in (("good", GOOD), ("bad", BAD))}
    found = [
        analyze_lengths(Inputs(outputs={"good": GOOD, "bad": BAD}, pairs=PAIRS)),
        analyze_lengths(Inputs(outputs=mixed, pairs=[PAIRS[i] for i in order])),
    ]
    for one, other in zip(*found, strict=True):
        for row, same in zip(one.rows, other.rows, strict=True):
            assert dict(row) == pytest.approx(dict(same))
