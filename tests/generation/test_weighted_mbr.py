"""MBR that counts candidates by their scores is MBR where these are equal, and else the best on average."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from sacrebleu import sentence_bleu

from noise2text.generation.mbr import MBR
from noise2text.generation.selection import Candidate
from noise2text.generation.weighted_mbr import WeightedMBR

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "to", "my", "house"]


def sentences_of(count: int, *, spread: float) -> list[list[Candidate]]:
    """Candidates of random words, some of them the same; their scores are hashes of them."""
    chance = random.Random(0)

    def candidate() -> Candidate:
        text = " ".join(chance.choices(WORDS, k=chance.randint(3, 7)))
        return Candidate(text, (), -spread * (sum(map(ord, text)) % 17))

    return [([candidate() for _ in range(5)] * 2)[: 6 + i % 3] for i in range(count)]


def test_equal_scores_leave_mbr_as_it_is() -> None:
    sentences = sentences_of(40, spread=0.0)
    for mbr in (MBR(), MBR(self_pair=False), MBR(utility="chrf"), MBR(candidate_is="reference")):
        assert WeightedMBR(mbr).select_all(sentences) == mbr.select_all(sentences)


@pytest.mark.parametrize("self_pair", [True, False])
@pytest.mark.parametrize("copies_differ", [True, False])
def test_the_chosen_candidate_has_the_highest_expected_bleu(self_pair: bool, copies_differ: bool) -> None:
    sentences = sentences_of(20, spread=0.2)
    if copies_differ:  # the same text, written in other tokens
        sentences = [[replace(c, score=c.score - i / 3) for i, c in enumerate(own)] for own in sentences]
    chosen = WeightedMBR(MBR(self_pair=self_pair)).select_all(sentences)
    for candidates, index in zip(sentences, chosen, strict=True):
        worth = [
            sum(
                math.exp(other.score) * sentence_bleu(one.text, [other.text]).score
                for at, other in enumerate(candidates)
                if self_pair or at != own
            )
            for own, one in enumerate(candidates)
        ]
        best = pytest.approx(max(worth), rel=1e-9)
        assert index == min(i for i, value in enumerate(worth) if value == best)


def test_where_no_candidate_can_be_written_all_count_alike() -> None:
    sentences = [[replace(c, score=-math.inf) for c in own] for own in sentences_of(10, spread=1.0)]
    assert WeightedMBR().select_all(sentences) == MBR().select_all(sentences)
    assert WeightedMBR(score_name="own").signature.startswith("weighted-mbr|by:own|likelihood:mean|mbr|")


def test_the_first_of_equal_candidates_is_chosen() -> None:
    same = [Candidate("one", (), -1.0), Candidate("one", (), 0.0)]
    assert WeightedMBR().select_all([same, same[:1]]) == [0, 0]
