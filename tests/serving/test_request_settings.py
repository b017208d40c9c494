"""Settings and limits of a request."""

from __future__ import annotations

import pytest

from noise2text.core.errors import Problem
from noise2text.generation.config import (
    AutoregressiveGenerationConfig,
    DiffusionGenerationConfig,
    LengthPredictingGenerationConfig,
)
from noise2text.models.baseline_config import LevenshteinGenerationConfig
from noise2text.serving.limits import Limits, check_texts, count_candidates
from noise2text.serving.request_settings import name_candidates, resolve_config

LENGTHS = LengthPredictingGenerationConfig()


@pytest.mark.parametrize(
    ("config", "n", "settings"),
    [
        (LENGTHS, 1, {"length_beam": 1, "noise_beam": 1}),
        (LENGTHS, 10, {"length_beam": 5, "noise_beam": 2}),
        (LENGTHS, 11, {"length_beam": 5, "noise_beam": 3}),
        (DiffusionGenerationConfig(), 7, {"noise_beam": 7}),
        (AutoregressiveGenerationConfig(), 4, {"beam": 4}),
        (AutoregressiveGenerationConfig(samples=2), 4, {"samples": 4}),
    ],
)
def test_n_gives_at_least_n_candidates(config: object, n: int, settings: dict[str, int]) -> None:
    assert name_candidates(config, n, {}) == settings


def test_n_with_a_length_is_the_number_of_noises() -> None:
    assert name_candidates(LENGTHS, 7, {"length": 5}) == {"length_beam": 1, "noise_beam": 7}


def test_n_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(Problem, match="either n or noise_beam"):
        name_candidates(LENGTHS, 2, {"noise_beam": 1})
    with pytest.raises(Problem, match="at least 1"):
        name_candidates(LENGTHS, 0, {})
    with pytest.raises(Problem, match="one text"):
        name_candidates(LevenshteinGenerationConfig(), 2, {})


def test_limits_hold_for_what_is_asked_but_never_for_the_models_defaults() -> None:
    limits = Limits(steps=10, candidates=4)
    settings, config = resolve_config({}, LENGTHS, guides={}, limits=limits)
    assert (settings, config.steps, count_candidates(config)) == ({}, 20, 10)
    assert resolve_config({"steps": 20}, LENGTHS, guides={}, limits=limits)[1].steps == 20
    for bad in ({"steps": 21}, {"guide_steps": 11}, {"noise_beam": 3}):
        with pytest.raises(Problem, match="at most"):
            resolve_config(bad, LENGTHS, guides={}, limits=limits)


def test_a_request_names_classifiers_not_folders() -> None:
    settings = {"guide": "tense", "guide_class": "past"}
    resolved, config = resolve_config(settings, LENGTHS, guides={"tense": "runs/tense"}, limits=Limits())
    assert (resolved["guide"], config.guide) == ("runs/tense", "runs/tense")
    with pytest.raises(Problem, match="no classifier"):
        resolve_config({**settings, "guide": "runs/tense"}, LENGTHS, guides={}, limits=Limits())


def test_texts_are_counted_and_measured() -> None:
    limits = Limits(texts=2, characters=3)
    check_texts(["abc", ""], limits)
    for texts, sentence in (([], "1 to 2"), (["a"] * 3, "1 to 2"), (["a", "abcd"], "Text 2 has 4")):
        with pytest.raises(Problem, match=sentence):
            check_texts(texts, limits)
    with pytest.raises(Problem, match="body bytes"):
        Limits(body_bytes=0)
