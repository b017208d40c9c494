"""Copying: BLEU against the source and iBLEU by sacrebleu, exact copies and the references' by hand."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import given, settings
from sacrebleu.metrics import BLEU

from noise2text.metrics.copying import exact_copies, ibleu, measure_reference_copying, source_bleu

from .corpora import Corpus, corpora


@given(corpora)
@settings(deadline=None, max_examples=40)
def test_source_bleu_and_ibleu_are_sacrebleus(corpus: Corpus) -> None:
    texts = [row[0] for row in corpus]
    references, sources = [row[1] for row in corpus], [row[2] for row in corpus]
    streams: Any = list(zip_longest(*references))
    good = BLEU().corpus_score(texts, streams).score
    copy = BLEU().corpus_score(texts, [sources]).score
    assert source_bleu(texts, references, sources).score == pytest.approx(copy)
    assert ibleu(texts, references, sources).score == pytest.approx(0.8 * good - 0.2 * copy)
    assert ibleu(texts, references, sources).signature.startswith("alpha:0.8|")


def test_a_perfect_text_that_copies_nothing_and_one_that_only_copies() -> None:
    reference, source = ["one two three four"], ["five six seven eight"]
    assert ibleu(reference, [reference], source).score == pytest.approx(80)
    assert ibleu(source, [reference], source).score == pytest.approx(-20)
    assert source_bleu(source, [reference], source).score == pytest.approx(100)


def test_exact_copies_by_hand() -> None:
    score = exact_copies(["a", " b ", "c", "👍🏽"], [["x"]] * 4, ["a", "b", "y", "👍"])
    assert score.score == 50
    assert score.signature.startswith("against:source|")


def test_how_much_the_references_copy_counts_each_of_them() -> None:
    references = [["a b c d", "x"], ["e f g h"]]
    similar, exact = measure_reference_copying(references, ["a b c d", "y"])
    assert exact.score == pytest.approx(100 / 3)
    expected = BLEU().corpus_score(["a b c d", "x", "e f g h"], [["a b c d", "a b c d", "y"]]).score
    assert similar.score == pytest.approx(expected)
