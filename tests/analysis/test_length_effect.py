"""Relative differences by hand; the table of tests is scipy's, antisymmetric, and marked as by Demirag."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from noise2text.analysis.finding import to_svg
from noise2text.analysis.length_effect import (
    CORNER,
    Comparison,
    compare_systems,
    relative_difference,
    sentence_bleu,
)
from noise2text.analysis.linear_regression import critical_t

SENTENCE = "the quick brown fox jumps over a lazy dog while two small cats look on from the wall"


def corpus() -> tuple[dict[str, list[str]], list[list[str]], list[int]]:
    """Three systems on forty sentences; the second loses its last words, the third every other sentence."""
    source_lengths = [3 + place % 14 for place in range(40)]
    right = [" ".join(SENTENCE.split()[:length]) for length in source_lengths]
    short = [" ".join(text.split()[:8]) for text in right]
    torn = [text if place % 2 else "nothing of it" for place, text in enumerate(right)]
    return {"right": right, "short": short, "torn": torn}, [[text] for text in right], source_lengths


def compared() -> Comparison:
    outputs, references, source_lengths = corpus()
    return compare_systems(outputs, references, source_lengths, confidence=0.99)


def test_relative_differences_by_hand() -> None:
    found = relative_difference([10, 5, 0, 0, 4], [5, 10, 0, 7, 0])
    assert found.tolist() == [0.5, -0.5, 0, -1, 1]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1))
def test_relative_differences_are_antisymmetric_and_at_most_one(scores: list[tuple[float, float]]) -> None:
    a, b = np.asarray(scores).T
    there, back = relative_difference(a, b), relative_difference(b, a)
    assert (there == -back).all()
    assert (abs(there) <= 1).all()


def test_sentence_bleu_is_sacrebleus_with_its_signature() -> None:
    hypotheses, references = ["a b c d e", "", "x"], [["a b c d f", "a b"], ["a"], ["x"]]
    scores, signature = sentence_bleu(hypotheses, references)
    expected = [sacrebleu.sentence_bleu(*each).score for each in zip(hypotheses, references, strict=True)]
    assert scores == pytest.approx(expected)
    assert "eff:yes" in signature


def test_every_line_is_scipys_over_sentence_bleu() -> None:
    outputs, references, source_lengths = corpus()
    scores: Any = {
        name: [sacrebleu.sentence_bleu(text, own).score for text, own in zip(texts, references, strict=True)]
        for name, texts in outputs.items()
    }
    found = compared()
    assert len(found.lines) == 6
    for (a, b), line in found.lines.items():
        y = [(p - q) / max(p, q) if max(p, q) else 0.0 for p, q in zip(scores[a], scores[b], strict=True)]
        theirs = stats.linregress(source_lengths, y)
        assert (line.slope, line.intercept, line.p) == pytest.approx(
            (theirs.slope, theirs.intercept, theirs.pvalue)
        )


def test_the_table_is_antisymmetric_and_reads_column_over_row() -> None:
    lines, tests = compared().findings(unit="words")
    table: Any = {row[CORNER]: row for row in tests.rows}
    assert list(table) == ["right", "short", "torn"]
    for a in table:
        assert table[a][a] is None
        for b in table:
            assert a == b or table[a][b] == pytest.approx(-table[b][a])
    assert table["short"]["right"] > critical_t(40, 0.99)  # the whole text wins more, the longer it is
    rows: Any = {(row["system"], row["over"]): row for row in lines.rows}
    assert list(rows) == [("right", "short"), ("right", "torn"), ("short", "torn")]
    assert rows["right", "short"]["t"] == table["short"]["right"]
    assert [rows[pair]["significant"] for pair in rows] == ["up", "no", "no"]
    assert compared().significant_direction("short", "right") == "down"
    assert "degrees of freedom:38|two-sided" in tests.signature


def test_equal_systems_have_no_slope() -> None:
    outputs, references, source_lengths = corpus()
    same = {"one": outputs["short"], "two": outputs["short"]}
    line = compare_systems(same, references, source_lengths, confidence=0.99).lines["one", "two"]
    assert (line.slope, line.t, line.p) == (0, 0, 1)


@pytest.mark.parametrize(
    ("t", "bold"),
    [(0.40, False), (11.29, True), (-2.89, False), (4.95, True), (2.55, False), (2.69, True), (2.89, True)],
)
def test_what_the_thesis_prints_in_bold_is_beyond_chance_and_positive(t: float, bold: bool) -> None:
    """Table 4.3, of 1,987 sentences; typed from it."""
    assert (t > critical_t(1987, 0.99)) is bold


def test_pictures_name_their_axes_panels_and_systems() -> None:
    lines, tests = (to_svg(finding) or "" for finding in compared().findings(unit="words"))
    for words in ("right", "over short", "over torn", "length of the source in words"):
        assert f">{words}<" in lines
    assert ">relative difference of sentence BLEU<" in lines
    for words in ("right", "short", "torn", "–"):
        assert f">{words}<" in tests
    bold = re.findall(r"font-weight: 700[^>]*>([^<]+)<", tests)
    assert bold == [f"{compared().lines['right', 'short'].t:.2f}"]
