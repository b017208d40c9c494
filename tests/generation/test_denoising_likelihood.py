"""A diffusion model judges a text by how well it reads it through noise, whatever else is judged with it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import noise2text
from noise2text.core.errors import Problem
from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.ragged import RaggedRows
from noise2text.generation.config import DiffusionGenerationConfig
from noise2text.generation.denoising_likelihood import NOISE_TIME
from noise2text.generation.selection import Candidate
from noise2text.generation.weighted_mbr import WeightedMBR
from noise2text.models import LengthPredictingModel
from noise2text.nn import denoiser
from noise2text.recipes.dinoiser import DinoiserGenerationConfig

from ..conftest import Make

SOURCES = ["sunday, 7 april 1957", "12. mai 2001", "a"]
TARGETS = ["1957-04-07", "2001", "0123456789"]


def by_hand(model: LengthPredictingModel, source: str, target: str, *, noise_factor: float) -> float:
    """The formula, a pair at a time."""
    (row,), (written,) = model.tokenizer.encode([source]), model.tokenizer.encode([target])
    canvas = model.layout.make_canvas(RaggedRows.from_lists([row]), RaggedRows.from_lists([written]))
    encoded, constraint = model.denoiser.encode(canvas.source), model.denoiser.constrain(canvas)
    z0 = model.denoiser.embedding.embed(torch.tensor([written]))
    offsets = model.lengths.log_probs(encoded)
    length = offsets[0, len(written) - len(row) + model.lengths.max_offset].item()
    level = model.schedule(torch.tensor([NOISE_TIME]), len(written))
    alpha_bar = 1 - math.sqrt(NOISE_TIME + 1e-4)
    assert level.alpha.item() == pytest.approx(math.sqrt(alpha_bar), rel=1e-2)
    noise = gaussian_noise(make_key(torch.zeros(1, dtype=torch.long)), 0, *z0.shape[1:])
    z = level.alpha.float() * z0 + noise_factor * level.sigma.float() * noise
    estimate = model.denoiser(z, level, encoded, constraint, None)
    chances = model.denoiser.logits(estimate).log_softmax(-1)
    return length + sum(chances[0, at, token].item() for at, token in enumerate(written))


@torch.no_grad()
def test_the_likelihood_is_the_formula_whatever_is_judged_with_it(small: Make) -> None:
    model = small(noise_factor=3.0)
    expected = [by_hand(model, *pair, noise_factor=3.0) for pair in zip(SOURCES, TARGETS, strict=True)]
    assert model.likelihood(SOURCES, TARGETS) == pytest.approx(expected, rel=1e-4)
    assert model.likelihood(SOURCES, TARGETS, batch=1) == pytest.approx(expected, rel=1e-4)
    counts = [len(row) for row in model.tokenizer.encode(TARGETS)]
    means = [total / count for total, count in zip(expected, counts, strict=True)]
    assert model.likelihood(SOURCES, TARGETS, per_token=True) == pytest.approx(means, rel=1e-4)


def test_what_cannot_be_written_has_no_likelihood(small: Make) -> None:
    assert small().likelihood(["a", "a", ""], ["1" * 17, "", "1"]) == [-math.inf] * 3
    with pytest.raises(Problem, match="at least 1 pair"):
        small().likelihood(["a"], ["1"], batch=0)
    with pytest.raises(Problem, match="list of texts"):
        small().likelihood("a", ["1"])
    with pytest.raises(Problem, match="1 and 2"):
        small().likelihood(["a"], ["1", "2"])


OPTIONS: dict[str, Any] = {
    "select": "weighted-mbr",
    "steps": 3,
    "stop_early": 0,
    "length_beam": 4,
    "noise_beam": 2,
}


@pytest.mark.parametrize("strategy", ["parallel", "token-by-token"])
def test_weighed_candidates_are_scored_and_chosen_by_the_model_itself(small: Make, strategy: str) -> None:
    """These tokens are letters, so that a text is written in one way only, as the likelihood takes it."""
    model = small(noise_factor=3.0)
    made = model.generate(SOURCES, strategy=strategy, **OPTIONS)
    for source, text, candidates, scores in zip(
        SOURCES, made.texts, made.candidates, made.scores, strict=True
    ):
        expected = model.likelihood([source] * len(candidates), candidates, per_token=True)
        assert scores == pytest.approx(expected, rel=1e-4)
        pairs = zip(candidates, scores, strict=True)
        assert text == candidates[WeightedMBR()([Candidate(each, (), score) for each, score in pairs])]


def test_texts_and_judgments_do_not_depend_on_how_many_scores_there_is_room_for(
    small: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small(noise_factor=3.0)
    together = model.generate(SOURCES, **OPTIONS)
    monkeypatch.setattr(denoiser, "MAX_LOGITS", 1)
    one_by_one = model.generate(SOURCES, **OPTIONS)
    assert one_by_one.candidates == together.candidates
    for a, b in zip(one_by_one.scores, together.scores, strict=True):
        assert a == pytest.approx(b, rel=1e-4)


def test_what_is_given_is_judged_with_the_rest(small: Make) -> None:
    model = small(noise_factor=3.0)
    made = model.generate(SOURCES[:1], prefix="19", length=6, **OPTIONS)
    expected = model.likelihood(SOURCES[:1] * 2, made.candidates[0], per_token=True)
    lengths = model.lengths.log_probs(model.denoiser.encode(source_of(model, SOURCES[0])))
    offset = 6 - len(model.tokenizer.encode(SOURCES[:1])[0]) + model.lengths.max_offset
    asked = lengths[0, offset].item() / 6  # a length that was asked for is not judged
    assert [score + asked for score in made.scores[0]] == pytest.approx(expected, rel=1e-4)


def source_of(model: LengthPredictingModel, text: str) -> Any:
    return model.layout.make_source(RaggedRows.from_lists(model.tokenizer.encode([text])))


def test_what_predicts_no_length_cannot_weigh() -> None:
    with pytest.raises(Problem, match="select"):
        DiffusionGenerationConfig(select="weighted-mbr")
    with pytest.raises(Problem, match="select"):  # it may not have learned from so little noise
        DinoiserGenerationConfig(select="weighted-mbr")


def test_the_shipped_model_finds_a_translation_likelier_than_another_text() -> None:
    model = noise2text.load("de-en", device="cpu", precision="float32")
    assert isinstance(model, LengthPredictingModel)
    source = "Ich habe gestern ein Buch gekauft."
    right, other, turned = model.likelihood(
        [source] * 3,
        ["I bought a book yesterday.", "She never eats meat at home.", "Book yesterday bought a I."],
    )
    assert right > max(other, turned)
