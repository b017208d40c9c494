"""Utilities equal nltk's and sacrebleu's to the last bit; MBR equals the double loop of eq. 27, ties too."""

from __future__ import annotations

import functools
import itertools
import math
import random
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import sacrebleu
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, modified_precision, sentence_bleu
from sacrebleu.metrics import BLEU, CHRF

from noise2text.core.errors import Problem
from noise2text.generation.mbr import MBR
from noise2text.generation.selection import (
    BestScore,
    Candidate,
    Selector,
    WithoutCopies,
    compare_candidates,
)
from noise2text.metrics.mbr_utilities import UTILITIES

ORACLE_BLEU, ORACLE_CORPUS_BLEU, ORACLE_CHRF = BLEU(effective_order=True), BLEU(), CHRF()


def oracle_bleu(hypothesis: str, reference: str) -> float:
    return float(ORACLE_BLEU.sentence_score(hypothesis, [reference]).score)


def oracle_bleu_corpus(hypothesis: str, reference: str) -> float:
    return float(ORACLE_CORPUS_BLEU.corpus_score([hypothesis], [[reference]]).score)


def oracle_chrf(hypothesis: str, reference: str) -> float:
    return float(ORACLE_CHRF.sentence_score(hypothesis, [reference]).score)


def oracle_nltk4(hypothesis: str, reference: str) -> float:
    smoothing = SmoothingFunction().method4
    return float(sentence_bleu([reference.split()], hypothesis.split(), smoothing_function=smoothing))


def oracle_unigram(hypothesis: str, reference: str) -> float:
    return float(modified_precision([reference.split()], hypothesis.split(), 1))


ORACLES: dict[str, Callable[[str, str], float]] = {
    "bleu": oracle_bleu,
    "bleu-corpus": oracle_bleu_corpus,
    "bleu-nltk4": oracle_nltk4,
    "chrf": oracle_chrf,
    "unigram": oracle_unigram,
}

# Few words, so that n-grams of every order are often shared and texts often equal.
words = st.sampled_from(["a", "b", "c", "cat,", "1.5", "3-4", "&quot;", "שלום", "مرحبا", "👩‍👩‍👧", "北京"])
texts = st.one_of(st.lists(words, max_size=12).map(" ".join), st.text(max_size=10))
candidate_texts = st.lists(st.one_of(texts, st.sampled_from(["", "a b", "a b c a"])), min_size=1, max_size=7)


def candidates(texts: list[str]) -> list[Candidate]:
    return [Candidate(text, (), 0.0) for text in texts]


@pytest.mark.parametrize("name", UTILITIES)
@given(hypothesis=texts, reference=texts)
@example(hypothesis="", reference="")
@example(hypothesis="", reference="a b")
@example(hypothesis="a", reference="")
@example(hypothesis="a", reference="a")
@example(hypothesis="a", reference="b")
@example(hypothesis="a", reference="a b c d e")
@example(hypothesis="a b", reference="a c")
@example(hypothesis="a b c", reference="a b c")
@example(hypothesis="a b c", reference="c b a")
@example(hypothesis="a a a a a", reference="a")
@example(hypothesis="a b c d", reference="e f g h")
@example(hypothesis="👍🏽 👍 🎉", reference="👍 👍🏽 🎉")
@example(hypothesis="שלום עולם גדול", reference="שלום גדול עולם")
@example(hypothesis=" a\u3000b \n", reference="a b")
@settings(deadline=None, max_examples=150)
def test_a_utility_equals_its_oracle(name: str, hypothesis: str, reference: str) -> None:
    assert UTILITIES[name](hypothesis, reference) == ORACLES[name](hypothesis, reference)


@pytest.mark.parametrize("name", UTILITIES)
@given(texts=candidate_texts)
@settings(deadline=None, max_examples=30)
def test_a_table_has_one_row_per_hypothesis_and_one_column_per_reference(name: str, texts: list[str]) -> None:
    utility_matrix = UTILITIES[name].utility_matrix(texts)
    expected = [[ORACLES[name](ours, theirs) for theirs in texts] for ours in texts]
    np.testing.assert_allclose(utility_matrix, expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(
    ("name", "hypothesis", "reference", "value"),
    [
        ("unigram", "a a b", "a c", 1 / 3),
        ("unigram", "a b", "b a a", 1),
        ("unigram", "", "a", 0),
        ("bleu", "a b c d", "a b c d", 100),
        # Matches 1 of 2 words and no pair of 1: 100 · (1/2 · 1/2)^½ with two orders.
        ("bleu", "a b", "a c", 50),
        # Only the unigram exists; the reference is twice as long: e^(1 − 2).
        ("bleu", "a", "a b", 100 * math.exp(-1)),
        # Characters: 2 of 3 match on either side; one pair of 2; no triple of 1: F₂(P = R) = P.
        ("chrf", "a bc", "abd", 100 * (2 / 3 + 1 / 2 + 0) / 3),
        ("bleu-nltk4", "a b c d", "a b c d", 1),
        ("bleu-nltk4", "a", "a", 1),
        ("bleu-nltk4", "a", "a b", math.exp(-1)),
        # Three orders without a match: ln 2 / (2ᵏ·5) of one n-gram each (an order too long counts as one).
        ("bleu-nltk4", "a b", "a c", (1 / 2 * (math.log(2) / 5) ** 3 / (2 * 4 * 8)) ** 0.25),
    ],
)
def test_utilities_by_hand(name: str, hypothesis: str, reference: str, value: float) -> None:
    assert UTILITIES[name](hypothesis, reference) == pytest.approx(value, rel=1e-12)


def naive_choice(texts: list[str], utility: Callable[[str, str], float], flip: bool, self_pair: bool) -> int:
    """Eq. 27 as written, a pair at a time, summed exactly."""
    best, least = 0, math.inf
    for index, ours in enumerate(texts):
        others = [other for at, other in enumerate(texts) if self_pair or at != index]
        pairs = [(other, ours) if flip else (ours, other) for other in others]
        risk = float(sum((Fraction(-utility(*pair)) for pair in pairs), Fraction()))
        if risk < least:
            best, least = index, risk
    return best


@pytest.mark.parametrize(
    ("name", "direction", "self_pair"),
    list(itertools.product(UTILITIES, ("hypothesis", "reference"), (True, False))),
)
@given(texts=candidate_texts)
@example(texts=["a b c", "a b c", "a b d", "", ""])
@example(texts=["", "", "a"])
@settings(deadline=None, max_examples=25)
def test_mbr_equals_the_naive_double_loop(
    name: str, direction: str, self_pair: bool, texts: list[str]
) -> None:
    rule = MBR(utility=name, candidate_is=direction, self_pair=self_pair)
    expected = naive_choice(texts, ORACLES[name], direction == "reference", self_pair)
    assert rule(candidates(texts)) == expected


@pytest.mark.parametrize("name", UTILITIES)
def test_mbr_equals_the_naive_double_loop_on_noisy_copies_of_a_sentence(name: str) -> None:
    rng = random.Random(0)
    vocabulary = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "rug", ",", ".", "today"]
    for _ in range(20):
        sentence = rng.choices(vocabulary, k=9)
        noisy = [[w if rng.random() < 0.8 else rng.choice(vocabulary) for w in sentence] for _ in range(8)]
        texts = [" ".join(words[: rng.randint(6, 9)]) for words in noisy] + [" ".join(sentence)] * 2
        assert MBR(utility=name)(candidates(texts)) == naive_choice(texts, ORACLES[name], False, True)


def scrambled(rng: random.Random, count: int) -> list[str]:
    """Many copies, permutations and prefixes of one short text, so that many sums are equal or nearly so."""
    words = rng.choices("abcd", k=rng.randint(1, 6))
    texts = [" ".join(rng.sample(words, rng.randint(len(words) // 2, len(words)))) for _ in range(count)]
    return [rng.choice(texts) for _ in range(count)]


@pytest.mark.parametrize(
    ("name", "direction", "self_pair"),
    list(itertools.product(UTILITIES, ("hypothesis", "reference"), (True, False))),
)
def test_ties_and_near_ties_are_decided_by_the_definition(name: str, direction: str, self_pair: bool) -> None:
    rng = random.Random(0)
    utility = functools.cache(ORACLES[name])
    sentences = [scrambled(rng, rng.randint(1, 9)) for _ in range(100)]
    expected = [naive_choice(texts, utility, direction == "reference", self_pair) for texts in sentences]
    rule = MBR(utility=name, candidate_is=direction, self_pair=self_pair)
    assert rule.select_all([candidates(texts) for texts in sentences]) == expected


@pytest.mark.parametrize("name", UTILITIES)
@given(sentences=st.lists(candidate_texts, max_size=5))
@settings(deadline=None, max_examples=25)
def test_sentences_together_are_as_one_by_one(name: str, sentences: list[list[str]]) -> None:
    rule = MBR(utility=name)
    together = rule.select_all([candidates(texts) for texts in sentences])
    assert together == [rule(candidates(texts)) for texts in sentences]
    assert together == [naive_choice(texts, ORACLES[name], False, True) for texts in sentences]


@pytest.mark.parametrize("name", UTILITIES)
def test_a_brevity_penalty_that_underflows_does_no_harm(name: str) -> None:
    texts = ["a", "b", " ".join("ab" + "cde" * 240), " ".join("b" + "cde" * 246)]
    for self_pair, direction in itertools.product((True, False), ("hypothesis", "reference")):
        rule = MBR(utility=name, candidate_is=direction, self_pair=self_pair)
        expected = naive_choice(texts, ORACLES[name], direction == "reference", self_pair)
        assert rule(candidates(texts)) == expected


punctuated = st.text(alphabet="ab1 .,-&;<>!/\t\n\u3000'", max_size=20)
entities = st.lists(
    st.one_of(punctuated, st.sampled_from(["<skipped>", "&quot;", "&amp;", "-\n"])), max_size=6
).map("".join)


@given(hypothesis=entities, reference=entities)
@example(hypothesis="1-\n2. 3-4,.", reference="1 2. 3 - 4 , .")
@settings(deadline=None, max_examples=300)
def test_words_are_tokenized_as_sacrebleu_tokenizes_lines(hypothesis: str, reference: str) -> None:
    assert UTILITIES["bleu"](hypothesis, reference) == oracle_bleu(hypothesis, reference)
    assert UTILITIES["bleu"].split(hypothesis) == tuple(ORACLE_BLEU.tokenizer(hypothesis.rstrip()).split())


def test_mbr_takes_what_the_others_agree_with() -> None:
    texts = ["x y z w", "the cat sat on the mat", "the cat sat on a mat", "the cat sat on the rug"]
    assert MBR()(candidates(texts)) == 1
    assert all(MBR(utility=name)(candidates(texts)) == 1 for name in UTILITIES)


def test_the_direction_and_the_self_pair_matter() -> None:
    # Precision rewards the short hypothesis; as the reference, the long text that holds all others wins.
    texts = ["a b", "a b c d", "a b e"]
    assert MBR(utility="unigram")(candidates(texts)) == 0
    assert MBR(utility="unigram", candidate_is="reference")(candidates(texts)) == 1
    # Only the pair with itself can tell these apart: an empty text does not even match itself.
    assert MBR(utility="bleu")(candidates(["", "a"])) == 1
    assert MBR(utility="bleu", self_pair=False)(candidates(["", "a"])) == 0


@given(texts=candidate_texts, seed=st.integers(0, 9))
@settings(deadline=None, max_examples=30)
def test_the_order_of_the_candidates_decides_ties_only(texts: list[str], seed: int) -> None:
    shuffled = random.Random(seed).sample(texts, len(texts))
    total = {ours: math.fsum(oracle_bleu(ours, theirs) for theirs in texts) for ours in texts}
    assert total[shuffled[MBR()(candidates(shuffled))]] == max(total.values())


def test_ties_go_to_the_first() -> None:
    assert MBR()(candidates(["a b", "c d", "e f"])) == 0
    assert MBR()(candidates(["x", "a b", "a b"])) == 1
    assert BestScore()([Candidate("a", (), -2.0), Candidate("b", (), -1.0), Candidate("c", (), -1.0)]) == 1


def test_best_score_takes_the_highest_score_whatever_the_text() -> None:
    scored = [Candidate("a", (5,), -math.inf), Candidate("b", (6,), -0.5), Candidate("", (), -3.0)]
    assert BestScore()(scored) == 1
    assert BestScore().signature == "score"


def answers(source: str, *scored: tuple[str, float]) -> list[Candidate]:
    return [Candidate(text, (), score, source) for text, score in scored]


def test_a_copy_of_the_source_is_chosen_only_where_there_is_nothing_else() -> None:
    rule = WithoutCopies(BestScore())
    asked = answers("How are You?", ("how  are you?", -1.0), ("how do you do?", -3.0), ("are you how?", -2.0))
    assert BestScore()(asked) == 0
    assert rule(asked) == 2
    assert rule(asked[:1]) == 0
    other = answers("so", ("no", -2.0), ("so", -1.0))
    assert rule.select_all([asked, other, asked[:1]]) == [2, 0, 0]
    assert rule.signature == "no-copies|score"


@given(texts=candidate_texts, source=texts)
def test_without_copies_the_choice_is_that_among_the_others(texts: list[str], source: str) -> None:
    own = [Candidate(text, (), 0.0, source) for text in texts]
    new = [each for each in own if each.text.casefold().split() != source.casefold().split()] or own
    assert own[WithoutCopies(MBR())(own)].text == new[MBR()(new)].text


@pytest.mark.parametrize("rule", [MBR(), BestScore(), WithoutCopies(MBR())])
def test_every_rule_chooses_the_only_candidate_and_refuses_none(rule: Selector) -> None:
    assert rule(candidates(["only"])) == 0
    assert rule.select_all([candidates(["only"]), candidates(["only", "only"])]) == [0, 0]
    assert rule.select_all([]) == []
    with pytest.raises(ValueError):
        rule([])


def test_signatures_name_the_utility_its_direction_and_the_self_pair() -> None:
    version = sacrebleu.__version__
    assert MBR().signature == (
        f"mbr|u:bleu|candidate:hypothesis|self:yes|nrefs:1|case:mixed|eff:yes|tok:13a|smooth:exp|version:{version}"
    )
    flipped = MBR(utility="chrf", candidate_is="reference", self_pair=False)
    assert flipped.signature == (
        "mbr|u:chrf|candidate:reference|self:no|"
        f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    )
    settings = itertools.product(UTILITIES, ("hypothesis", "reference"), (True, False))
    assert len({MBR(*setting).signature for setting in settings}) == 4 * len(UTILITIES)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(Problem, match=r"'blue'.*bleu, bleu-corpus, bleu-nltk4, chrf, unigram"):
        MBR(utility="blue")
    with pytest.raises(Problem, match=r"candidate_is 'both'.*hypothesis, reference"):
        MBR(candidate_is="both")


def test_a_lone_or_unanimous_candidate_needs_no_sacrebleu() -> None:
    code = (
        "import sys; from noise2text.generation.mbr import MBR\n"
        "from noise2text.generation.selection import Candidate\n"
        "lone = Candidate('a b', (1, 2), 0.0)\n"
        "assert MBR()([lone]) == MBR()([lone, lone]) == 0\n"
        "print({'sacrebleu', 'nltk', 'torch'} & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_a_copy_of_the_source_agrees_with_nobody_where_copies_are_left_out() -> None:
    given = [Candidate(text, (), 0.0, source="a b c") for text in ("a b c", "a b d", "a b d e")]
    selector = WithoutCopies(MBR())
    matrix = np.array(compare_candidates(selector, given))
    assert not matrix[0].any()
    assert not matrix[:, 0].any()
    assert matrix[1:, 1:].tolist() == MBR().utilities(given[1:])
    assert int(matrix.mean(1).argmax()) == selector(given)


def test_a_selector_that_compares_nothing_has_no_utilities() -> None:
    given = candidates(["a", "b"])
    assert compare_candidates(BestScore(), given) == []
    assert compare_candidates(WithoutCopies(BestScore()), given) == []
