"""MBR by length: the best of each length first, then the best of these, as a plain loop finds them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from noise2text.core.config import get_setting
from noise2text.generation.mbr import MBR
from noise2text.generation.mbr_by_length import MBRByLength
from noise2text.generation.selection import Candidate
from noise2text.generation.selector_registry import SELECTORS
from noise2text.recipes.dinoiser import PRESETS

words = st.lists(st.sampled_from("abc"), min_size=3, max_size=6)
ORACLE = BLEU()


def candidates(texts: Sequence[Sequence[str]]) -> list[Candidate]:
    return [Candidate(" ".join(text), tuple(range(len(text))), 0.0) for text in texts]


def best(texts: Sequence[str]) -> int:
    """The text of the highest mean corpus BLEU against the others; ties go to the first."""
    if len(texts) == 1:
        return 0
    means = [
        sum(ORACLE.corpus_score([text], [[other]]).score for j, other in enumerate(texts) if i != j)
        for i, text in enumerate(texts)
    ]
    return max(range(len(texts)), key=lambda i: (round(means[i], 9), -i))


@given(st.lists(words, min_size=1, max_size=8))
def test_it_is_the_winner_of_the_winners_of_each_length(texts: list[list[str]]) -> None:
    lines = [" ".join(text) for text in texts]
    winners = []
    for length in dict.fromkeys(map(len, texts)):
        group = [i for i, text in enumerate(texts) if len(text) == length]
        winners.append(group[best([lines[i] for i in group])])
    expected = winners[best([lines[i] for i in winners])]
    selector = MBRByLength(MBR(utility="bleu-corpus", self_pair=False))
    assert lines[selector(candidates(texts))] == lines[expected]


@given(st.lists(st.lists(words, min_size=1, max_size=4), min_size=1, max_size=4))
def test_many_sentences_at_once_are_each_alone(sentences: list[list[list[str]]]) -> None:
    selector = MBRByLength()
    many = [candidates(texts) for texts in sentences]
    assert selector.select_all(many) == [selector(each) for each in many]


def test_with_one_length_it_is_plain_mbr() -> None:
    texts = candidates(["abca", "abcb", "abcc", "cabc"])
    assert MBRByLength()(texts) == MBR()(texts)


def test_dinoiser_selects_by_it_as_its_released_code_does() -> None:
    config = PRESETS["iwslt14-de-en"]
    selector = SELECTORS[get_setting(config, "select")](config.generation)
    assert selector == MBRByLength(MBR(utility="bleu-corpus", candidate_is="hypothesis", self_pair=False))
    assert selector.signature.startswith("by-length|mbr|u:bleu-corpus|candidate:hypothesis|self:no|")
    assert "|eff:no|" in selector.signature
