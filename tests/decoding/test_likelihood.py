"""A likelihood is the sum of the whole network's log-probabilities, and a teacher picks by it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sacrebleu import sentence_bleu

from noise2text.decoding.likelihood import Likelihood, Weighed
from noise2text.decoding.selection import MBR, Candidate
from noise2text.problem import Problem
from noise2text.text.tokenizer import Tokenizer

from ..conftest import Make
from .test_autoregressive import NAMES, next_scores, system_of

SOURCES = ["sunday, 7 april 1957", "12. mai 2001", "a", "a"]
TARGETS = ["1957-04-07", "2001", "", "0123456789012345"]


@NAMES
def test_the_likelihood_is_the_sum_of_the_log_probabilities(name: str, tokenizer: Tokenizer) -> None:
    system = system_of(name, tokenizer)
    expected, lengths = [], []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        row, written = tokenizer.encode([source, target])
        ended = [*written, tokenizer.eos]
        lengths.append(len(ended))
        expected.append(
            sum(next_scores(system, row, written[:i])[token].item() for i, token in enumerate(ended))
        )
    assert system.likelihood(SOURCES, TARGETS) == pytest.approx(expected, rel=1e-4)
    assert system.likelihood(SOURCES, TARGETS, batch=1) == pytest.approx(expected, rel=1e-4)
    means = [total / length for total, length in zip(expected, lengths, strict=True)]
    assert system.likelihood(SOURCES, TARGETS, per_token=True) == pytest.approx(means, rel=1e-4)


def test_what_cannot_be_written_has_no_likelihood(tokenizer: Tokenizer) -> None:
    system = system_of("gru", tokenizer)
    assert system.likelihood(["a", "", ""], ["1" * 17, "1", ""]) == [-math.inf, -math.inf, 0.0]
    assert system.likelihood([], []) == []
    with pytest.raises(Problem, match="list of texts"):
        system.likelihood(["a"], "1")


class Fixed:
    """A teacher that knows some answers by heart."""

    def __init__(self, known: dict[tuple[str, str], tuple[float, int]]) -> None:
        self.known, self.asked = known, 0

    def likelihood(self, texts: list[str], targets: list[str], *, per_token: bool = False) -> list[float]:
        self.asked += len(texts)
        found = [self.known[pair] for pair in zip(texts, targets, strict=True)]
        return [total / length if per_token else total for total, length in found]


def test_the_teacher_picks_by_mean_or_by_sum_and_scores_equal_texts_once() -> None:
    known = {("s", "short"): (-4.0, 2), ("s", "long one"): (-6.0, 6), ("t", "short"): (-1.0, 1)}
    sentences = [
        [Candidate("short", (1,), 0.0, "s"), Candidate("long one", (2,), -9.0, "s")],
        [Candidate("short", (1,), 0.0, "t"), Candidate("short", (1,), 0.0, "t")],
    ]
    teacher = Fixed(known)
    assert Likelihood(teacher).choose_all(sentences) == [1, 0]  # type: ignore[arg-type]
    assert teacher.asked == 3
    assert Likelihood(teacher, by="sum").choose_all(sentences) == [0, 0]  # type: ignore[arg-type]
    assert Likelihood(teacher)(sentences[0]) == 1  # type: ignore[arg-type]
    assert Likelihood(teacher, by="sum").signature == "teacher|likelihood:sum"  # type: ignore[arg-type]
    assert Likelihood(teacher).choose_all([]) == []  # type: ignore[arg-type]
    with pytest.raises(Problem, match="median"):
        Likelihood(teacher, by="median")  # type: ignore[arg-type]


def test_a_diffusion_models_candidates_are_reranked_by_the_teacher(small: Make, tokenizer: Tokenizer) -> None:
    teacher = system_of("transformer", tokenizer)
    texts = ["sunday, 7 april 1957", "", "12. mai 2001"]
    how: dict[str, Any] = {"steps": 3, "stop_early": 0, "length_beam": 4, "noise_beam": 1}
    made = small().generate(texts, selector=Likelihood(teacher), **how)
    for source, text, candidates in zip(texts, made.texts, made.candidates, strict=True):
        if candidates:
            scores = teacher.likelihood([source] * len(candidates), candidates, per_token=True)
            best = torch.tensor(scores).argmax()
            assert text == candidates[best]


WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "to", "my", "house"]


def sentences_of(count: int) -> list[list[Candidate]]:
    """Candidates of random words, some of them the same."""
    generator = torch.Generator().manual_seed(0)

    def text() -> str:
        size = int(torch.randint(3, 8, (), generator=generator))
        return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (size,), generator=generator).tolist())

    return [
        [Candidate(each, (), 0.0, f"source {i}") for each in [text() for _ in range(5)] * 2][: 6 + i % 3]
        for i in range(count)
    ]


class Judge:
    """A judge that likes each text by a hash of it."""

    def __init__(self, spread: float) -> None:
        self.spread = spread

    def likelihood(self, texts: Any, targets: Any, *, per_token: bool = False) -> list[float]:
        assert per_token
        return [
            -self.spread * (sum(map(ord, source + target)) % 17)
            for source, target in zip(texts, targets, strict=True)
        ]


def test_a_judge_without_an_opinion_leaves_mbr_as_it_is() -> None:
    sentences = sentences_of(40)
    for inner in (MBR(), MBR(self_pair=False), MBR(utility="chrf"), MBR(candidate_is="reference")):
        assert Weighed(Judge(0.0), inner).choose_all(sentences) == inner.choose_all(sentences)


@pytest.mark.parametrize("self_pair", [True, False])
def test_the_chosen_candidate_has_the_highest_expected_bleu(self_pair: bool) -> None:
    sentences, judge = sentences_of(20), Judge(0.2)
    chosen = Weighed(judge, MBR(self_pair=self_pair)).choose_all(sentences)
    for candidates, place in zip(sentences, chosen, strict=True):
        texts = [each.text for each in candidates]
        sources = [each.source for each in candidates]
        chances = [math.exp(x) for x in judge.likelihood(sources, texts, per_token=True)]
        worth = [
            sum(
                chance * sentence_bleu(text, [other]).score
                for at, (other, chance) in enumerate(zip(texts, chances, strict=True))
                if self_pair or at != own
            )
            for own, text in enumerate(texts)
        ]
        assert worth[place] == pytest.approx(max(worth), rel=1e-9)
        assert place == min(
            i for i, value in enumerate(worth) if value == pytest.approx(max(worth), rel=1e-9)
        )


class Speechless(Judge):
    """A judge to whom nothing can be written."""

    def likelihood(self, texts: Any, targets: Any, *, per_token: bool = False) -> list[float]:
        return [-math.inf for _ in texts]


def test_where_no_candidate_can_be_judged_all_count_alike() -> None:
    sentences = sentences_of(10)
    assert Weighed(Speechless(1.0)).choose_all(sentences) == MBR().choose_all(sentences)
    assert Weighed(Speechless(1.0)).signature.startswith("weighed|by:judge|likelihood:mean|mbr|")


def test_nobody_is_asked_where_all_candidates_are_the_same() -> None:
    teacher, same = Fixed({}), [Candidate("one", (), 0.0, "s")] * 3
    assert Weighed(teacher).choose_all([same, same[:1]]) == [0, 0]  # type: ignore[arg-type]
    assert teacher.asked == 0
