"""Which sentences are shown."""

from __future__ import annotations

import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from noise2text.report.cases import sentence_chrf, worst_and_best

TEXTS = ["the cat sat", "a dog", "", "exactly so", "שלום", "🙂 ok"]
REFERENCES = [
    ("the cat sits", "a cat sat"),
    ("a dog ran far",),
    ("something",),
    ("exactly so",),
    ("שלום לך",),
    ("🙂",),
]


def test_the_score_of_a_sentence_is_sacrebleus() -> None:
    found, signature = sentence_chrf(TEXTS, REFERENCES)
    for value, hypothesis, references in zip(found, TEXTS, REFERENCES, strict=True):
        assert abs(value - sacrebleu.sentence_chrf(hypothesis, list(references)).score) < 1e-9
    assert "nc:6" in signature


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(1, 6))
def test_the_worst_are_the_lowest_the_best_the_highest_and_none_is_both(
    values: list[int], count: int
) -> None:
    worst, best = worst_and_best([float(value) for value in values], count)
    assert set(worst).isdisjoint(best)
    assert len(worst) <= count
    assert 1 <= len(best) <= count
    assert max(values) == values[best[0]]
    if worst:
        assert values[worst[0]] == min(values)
        assert all(values[index] < max(values) for index in worst)
        assert max(values[index] for index in worst) <= min(values[index] for index in best)


def test_equal_sentences_come_in_the_order_of_the_input_and_none_is_worst() -> None:
    assert worst_and_best([1.0, 0.0, 0.0, 1.0, 0.5], 2) == ([1, 2], [0, 3])
    assert worst_and_best([100.0] * 4, 3) == ([], [0, 1, 2])
