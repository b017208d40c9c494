"""Quality against candidates, steps and diversity."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest
from nltk.util import ngrams

from noise2text.analysis.generation import known_settings
from noise2text.analysis.tradeoffs import (
    CandidateOptions,
    DiversityOptions,
    quality_by_candidates,
    quality_by_diversity,
    quality_by_steps,
)
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair

from .models import DIFFUSION, PAIRS, SOURCES, tiny
from .test_sampling import oracle

FEW: dict[str, Any] = {"steps": 4, "stop_early": 0}


@pytest.mark.parametrize("name", DIFFUSION)
def test_each_number_of_candidates_scores_what_a_run_with_so_many_would(name: str) -> None:
    model = tiny(name)
    found = quality_by_candidates({name: model}, PAIRS, counts=(1, 2, 5), seed=2, settings=FEW)
    alone: dict[str, Any] = {"length_beam": 1} if name == "difformer" else {}
    assert [row["drawn"] for row in found.rows] == [1, 2, 5]
    for row in found.rows:
        made = model.generate(SOURCES, seed=2, noise_beam=row["drawn"], **FEW, **alone)
        assert row["bleu"] == pytest.approx(oracle(made.texts))
        assert row["candidates"] == row["drawn"] == len(made.candidates[0])


@pytest.mark.parametrize("name", DIFFUSION)
def test_more_candidates_never_change_the_first_ones(name: str) -> None:
    model = tiny(name)
    alone = known_settings(model, length_beam=1)
    few, many = (model.generate(SOURCES, noise_beam=count, **FEW, **alone).candidates for count in (2, 5))
    assert few == [own[:2] for own in many]
    assert len({text for own in many for text in own}) > 3  # and they do differ


def test_several_lengths_each_have_so_many_noises() -> None:
    model, settings = tiny("difformer"), FEW | {"length_beam": 3}
    found = quality_by_candidates({"d": model}, PAIRS, counts=(1, 4), settings=settings)
    assert [row["candidates"] for row in found.rows] == [3, 12]
    made = model.generate(SOURCES, noise_beam=1, **settings)
    assert found.rows[0]["bleu"] == pytest.approx(oracle(made.texts))


def test_samples_of_a_baseline_are_candidates_too() -> None:
    model = tiny("transformer")
    found = quality_by_candidates({"t": model}, PAIRS, counts=(1, 3), seed=1)
    made = model.generate(SOURCES, seed=1, samples=1, select="mbr")
    assert found.rows[0]["bleu"] == pytest.approx(oracle(made.texts))
    with pytest.raises(Problem, match="copy has no setting"):
        quality_by_candidates({"copy": tiny("copy")}, PAIRS)


def test_an_empty_source_has_no_candidates_and_an_empty_text() -> None:
    model = tiny("diffuseq")
    found = quality_by_candidates({"d": model}, [*PAIRS, Pair("", "x")], counts=(1, 2), settings=FEW)
    assert [row["candidates"] for row in found.rows] == [1, 2]


@pytest.mark.parametrize("name", [*DIFFUSION, "cmlm"])
def test_each_number_of_steps_scores_what_a_run_with_so_many_would(name: str) -> None:
    model = tiny(name)
    found = quality_by_steps({name: model}, PAIRS, counts=(1, 3), seed=2)
    for row, count in zip(found.rows, (1, 3), strict=True):
        steps: dict[str, Any] = {"iterations": count} if name == "cmlm" else {"steps": count, "stop_early": 0}
        made = model.generate(SOURCES, seed=2, **steps)
        assert row["steps"] == count
        assert row["bleu"] == pytest.approx(oracle(made.texts))
        assert row["seconds"] * row["sentences_per_second"] == pytest.approx(len(PAIRS))  # type: ignore[operator]


def test_what_has_no_steps_says_so() -> None:
    with pytest.raises(Problem, match="teacher has no setting steps or iterations"):
        quality_by_steps({"teacher": tiny("transformer")}, PAIRS)


def test_quality_is_the_mean_of_the_samples_and_diversity_compares_them() -> None:
    models = {"drawn": tiny("seqdiffuseq"), "searched": tiny("gru")}
    drawn, searched = quality_by_diversity(models, PAIRS, samples=3, seed=7, settings={"select": "mbr"}).rows
    made = [models["drawn"].generate(SOURCES, seed=seed, noise_beam=1).texts for seed in (7, 8, 9)]
    grams = [[gram for text in own for gram in ngrams(text, 4)] for own in zip(*made, strict=True)]
    assert drawn["bleu"] == pytest.approx(fmean(map(oracle, made)))
    assert drawn["div_4"] == pytest.approx(fmean(100 * len(set(own)) / len(own) for own in grams))
    assert searched["self_bleu"] == pytest.approx(100)  # a beam search draws nothing
    assert searched["div_4"] < drawn["div_4"]  # type: ignore[operator]


@pytest.mark.parametrize("text", ["", "1,x", "0,1"])
def test_counts_are_whole_numbers_above_zero(text: str) -> None:
    with pytest.raises(Problem, match="counts"):
        CandidateOptions(counts=text)


def test_a_lone_sample_has_no_diversity() -> None:
    with pytest.raises(Problem, match="samples"):
        DiversityOptions(samples=1)
