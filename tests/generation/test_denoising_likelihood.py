"""A diffusion model judges a text by how well it reads it through noise, whatever else is judged with it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import noise2text
from noise2text.core.errors import Problem
from noise2text.core.random import gaussian, key
from noise2text.data.ragged import Rows
from noise2text.generation.config import DiffusionSettings
from noise2text.generation.denoising_likelihood import TIME
from noise2text.generation.selection import Candidate
from noise2text.generation.weighted_mbr import Weighed
from noise2text.models import LengthDiffusion
from noise2text.nn import denoiser
from noise2text.recipes.dinoiser import ToldSettings

from ..conftest import Make

SOURCES = ["sunday, 7 april 1957", "12. mai 2001", "a"]
TARGETS = ["1957-04-07", "2001", "0123456789"]


def by_hand(system: LengthDiffusion, source: str, target: str, *, factor: float) -> float:
    """The formula, a pair at a time."""
    (row,), (written,) = system.tokenizer.encode([source]), system.tokenizer.encode([target])
    canvas = system.layout.canvas(Rows.of([row]), Rows.of([written]))
    memory, held = system.denoiser.read(canvas.source), system.denoiser.hold(canvas)
    z0 = system.denoiser.space.embed(torch.tensor([written]))
    offsets = system.lengths.log_probabilities(memory)
    length = offsets[0, len(written) - len(row) + system.lengths.reach].item()
    level = system.schedule(torch.tensor([TIME]), len(written))
    alpha_bar = 1 - math.sqrt(TIME + 1e-4)
    assert level.alpha.item() == pytest.approx(math.sqrt(alpha_bar), rel=1e-2)
    noise = gaussian(key(torch.zeros(1, dtype=torch.long)), 0, *z0.shape[1:])
    z = level.alpha.float() * z0 + factor * level.sigma.float() * noise
    estimate = system.denoiser(z, level, memory, held, None)
    chances = system.denoiser.logits(estimate).log_softmax(-1)
    return length + sum(chances[0, at, token].item() for at, token in enumerate(written))


@torch.no_grad()
def test_the_likelihood_is_the_formula_whatever_is_judged_with_it(small: Make) -> None:
    system = small(factor=3.0)
    expected = [by_hand(system, *pair, factor=3.0) for pair in zip(SOURCES, TARGETS, strict=True)]
    assert system.likelihood(SOURCES, TARGETS) == pytest.approx(expected, rel=1e-4)
    assert system.likelihood(SOURCES, TARGETS, batch=1) == pytest.approx(expected, rel=1e-4)
    counts = [len(row) for row in system.tokenizer.encode(TARGETS)]
    means = [total / count for total, count in zip(expected, counts, strict=True)]
    assert system.likelihood(SOURCES, TARGETS, per_token=True) == pytest.approx(means, rel=1e-4)


def test_what_cannot_be_written_has_no_likelihood(small: Make) -> None:
    assert small().likelihood(["a", "a", ""], ["1" * 17, "", "1"]) == [-math.inf] * 3
    with pytest.raises(Problem, match="at least 1 pair"):
        small().likelihood(["a"], ["1"], batch=0)
    with pytest.raises(Problem, match="list of texts"):
        small().likelihood("a", ["1"])
    with pytest.raises(Problem, match="1 and 2"):
        small().likelihood(["a"], ["1", "2"])


HOW: dict[str, Any] = {"select": "weighed", "steps": 3, "stop_early": 0, "length_beam": 4, "noise_beam": 2}


@pytest.mark.parametrize("strategy", ["parallel", "token-by-token"])
def test_weighed_candidates_are_scored_and_chosen_by_the_model_itself(small: Make, strategy: str) -> None:
    """These tokens are letters, so that a text is written in one way only, as the likelihood takes it."""
    system = small(factor=3.0)
    made = system.generate(SOURCES, strategy=strategy, **HOW)
    for source, text, candidates, scores in zip(
        SOURCES, made.texts, made.candidates, made.scores, strict=True
    ):
        expected = system.likelihood([source] * len(candidates), candidates, per_token=True)
        assert scores == pytest.approx(expected, rel=1e-4)
        pairs = zip(candidates, scores, strict=True)
        assert text == candidates[Weighed()([Candidate(each, (), score) for each, score in pairs])]


def test_texts_and_judgements_do_not_depend_on_how_many_scores_there_is_room_for(
    small: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = small(factor=3.0)
    together = system.generate(SOURCES, **HOW)
    monkeypatch.setattr(denoiser, "LOGITS", 1)
    one_by_one = system.generate(SOURCES, **HOW)
    assert one_by_one.candidates == together.candidates
    for a, b in zip(one_by_one.scores, together.scores, strict=True):
        assert a == pytest.approx(b, rel=1e-4)


def test_what_is_given_is_judged_with_the_rest(small: Make) -> None:
    system = small(factor=3.0)
    made = system.generate(SOURCES[:1], prefix="19", length=6, **HOW)
    expected = system.likelihood(SOURCES[:1] * 2, made.candidates[0], per_token=True)
    lengths = system.lengths.log_probabilities(system.denoiser.read(source_of(system, SOURCES[0])))
    offset = 6 - len(system.tokenizer.encode(SOURCES[:1])[0]) + system.lengths.reach
    asked = lengths[0, offset].item() / 6  # a length that was asked for is not judged
    assert [score + asked for score in made.scores[0]] == pytest.approx(expected, rel=1e-4)


def source_of(system: LengthDiffusion, text: str) -> Any:
    return system.layout.source(Rows.of(system.tokenizer.encode([text])))


def test_what_predicts_no_length_cannot_weigh() -> None:
    with pytest.raises(Problem, match="select"):
        DiffusionSettings(select="weighed")
    with pytest.raises(Problem, match="select"):  # it may not have learned from so little noise
        ToldSettings(select="weighed")


def test_the_shipped_model_finds_a_translation_likelier_than_another_text() -> None:
    model = noise2text.load("de-en", device="cpu", precision="float32")
    assert isinstance(model, LengthDiffusion)
    source = "Ich habe gestern ein Buch gekauft."
    right, other, turned = model.likelihood(
        [source] * 3,
        ["I bought a book yesterday.", "She never eats meat at home.", "Book yesterday bought a I."],
    )
    assert right > max(other, turned)
