"""A likelihood is the sum of the whole network's log-probabilities, and a teacher picks by it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.generation.reranking import LikelihoodSelector
from noise2text.generation.selection import Candidate

from ..conftest import Make
from .test_autoregressive import NAMES, build_model, next_scores

SOURCES = ["sunday, 7 april 1957", "12. mai 2001", "a", "a"]
TARGETS = ["1957-04-07", "2001", "", "0123456789012345"]


@NAMES
def test_the_likelihood_is_the_sum_of_the_log_probabilities(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    expected, lengths = [], []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        row, written = tokenizer.encode([source, target])
        ended = [*written, tokenizer.eos]
        lengths.append(len(ended))
        expected.append(
            sum(next_scores(model, row, written[:i])[token].item() for i, token in enumerate(ended))
        )
    assert model.likelihood(SOURCES, TARGETS) == pytest.approx(expected, rel=1e-4)
    assert model.likelihood(SOURCES, TARGETS, batch=1) == pytest.approx(expected, rel=1e-4)
    means = [total / length for total, length in zip(expected, lengths, strict=True)]
    assert model.likelihood(SOURCES, TARGETS, per_token=True) == pytest.approx(means, rel=1e-4)


def test_what_cannot_be_written_has_no_likelihood(tokenizer: Tokenizer) -> None:
    model = build_model("gru", tokenizer)
    assert model.likelihood(["a", "", ""], ["1" * 17, "1", ""]) == [-math.inf, -math.inf, 0.0]
    assert model.likelihood([], []) == []
    with pytest.raises(Problem, match="list of texts"):
        model.likelihood(["a"], "1")


class AlignedJointLayout:
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
    teacher = AlignedJointLayout(known)
    assert LikelihoodSelector(teacher).select_all(sentences) == [1, 0]  # type: ignore[arg-type]
    assert teacher.asked == 3
    assert LikelihoodSelector(teacher, reduction="sum").select_all(sentences) == [0, 0]  # type: ignore[arg-type]
    assert LikelihoodSelector(teacher)(sentences[0]) == 1  # type: ignore[arg-type]
    assert LikelihoodSelector(teacher, reduction="sum").signature == "teacher|likelihood:sum"  # type: ignore[arg-type]
    assert LikelihoodSelector(teacher).select_all([]) == []  # type: ignore[arg-type]
    with pytest.raises(Problem, match="median"):
        LikelihoodSelector(teacher, reduction="median")  # type: ignore[arg-type]


def test_a_diffusion_models_candidates_are_reranked_by_the_teacher(small: Make, tokenizer: Tokenizer) -> None:
    teacher = build_model("transformer", tokenizer)
    texts = ["sunday, 7 april 1957", "", "12. mai 2001"]
    options: dict[str, Any] = {"steps": 3, "stop_early": 0, "length_beam": 4, "noise_beam": 1}
    made = small().generate(texts, selector=LikelihoodSelector(teacher), **options)
    assert [len(candidates) for candidates in made.candidates] == [4, 0, 4]
    for at in (0, 2):
        candidates = made.candidates[at]
        scores = teacher.likelihood([texts[at]] * len(candidates), candidates, per_token=True)
        assert made.texts[at] == candidates[torch.tensor(scores).argmax()]
