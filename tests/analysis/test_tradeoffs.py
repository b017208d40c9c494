"""Quality against candidates, steps and diversity."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest
from nltk.util import ngrams

from noise2text.analysis.samples import those_known
from noise2text.analysis.tradeoffs import (
    CandidateOptions,
    DiversityOptions,
    against_candidates,
    against_diversity,
    against_steps,
)
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair

from .models import DIFFUSION, PAIRS, SOURCES, tiny
from .test_walks import oracle

FEW: dict[str, Any] = {"steps": 4, "stop_early": 0}


@pytest.mark.parametrize("name", DIFFUSION)
def test_each_number_of_candidates_scores_what_a_run_with_so_many_would(name: str) -> None:
    system, how = tiny(name), FEW
    found = against_candidates({name: system}, PAIRS, counts=(1, 2, 5), seed=2, settings=how)
    alone: dict[str, Any] = {"length_beam": 1} if name == "difformer" else {}
    for row in found.rows:
        made = system.generate(SOURCES, seed=2, noise_beam=row["drawn"], **how, **alone)
        assert row["bleu"] == pytest.approx(oracle(made.texts))
        assert row["candidates"] == row["drawn"] == len(made.candidates[0])


@pytest.mark.parametrize("name", DIFFUSION)
def test_more_candidates_never_change_the_first_ones(name: str) -> None:
    system = tiny(name)
    alone = those_known(system, length_beam=1)
    few, many = (system.generate(SOURCES, noise_beam=count, **FEW, **alone).candidates for count in (2, 5))
    assert few == [own[:2] for own in many]
    assert len({text for own in many for text in own}) > 3  # and they do differ


def test_several_lengths_each_have_so_many_noises() -> None:
    system, how = tiny("difformer"), FEW | {"length_beam": 3}
    found = against_candidates({"d": system}, PAIRS, counts=(1, 4), settings=how)
    assert [row["candidates"] for row in found.rows] == [3, 12]
    made = system.generate(SOURCES, noise_beam=1, **how)
    assert found.rows[0]["bleu"] == pytest.approx(oracle(made.texts))


def test_samples_of_a_baseline_are_candidates_too() -> None:
    system = tiny("transformer")
    found = against_candidates({"t": system}, PAIRS, counts=(1, 3), seed=1)
    made = system.generate(SOURCES, seed=1, samples=1, select="mbr")
    assert found.rows[0]["bleu"] == pytest.approx(oracle(made.texts))
    with pytest.raises(Problem, match="copy has no setting"):
        against_candidates({"copy": tiny("copy")}, PAIRS)


def test_an_empty_source_has_no_candidates_and_an_empty_text() -> None:
    system = tiny("diffuseq")
    found = against_candidates({"d": system}, [*PAIRS, Pair("", "x")], counts=(1, 2), settings=FEW)
    assert [row["candidates"] for row in found.rows] == [1, 2]


@pytest.mark.parametrize("name", [*DIFFUSION, "cmlm"])
def test_each_number_of_steps_scores_what_a_run_with_so_many_would(name: str) -> None:
    system = tiny(name)
    found = against_steps({name: system}, PAIRS, counts=(1, 3), seed=2)
    for row, count in zip(found.rows, (1, 3), strict=True):
        how: dict[str, Any] = {"iterations": count} if name == "cmlm" else {"steps": count, "stop_early": 0}
        made = system.generate(SOURCES, seed=2, **how)
        assert row["steps"] == count
        assert row["bleu"] == pytest.approx(oracle(made.texts))
        assert row["seconds"] * row["sentences_per_second"] == pytest.approx(len(PAIRS))  # type: ignore[operator]


def test_what_has_no_steps_says_so() -> None:
    with pytest.raises(Problem, match="teacher has no setting steps or iterations"):
        against_steps({"teacher": tiny("transformer")}, PAIRS)


def test_quality_is_the_mean_of_the_samples_and_diversity_compares_them() -> None:
    systems = {"drawn": tiny("seqdiffuseq"), "searched": tiny("gru")}
    drawn, searched = against_diversity(systems, PAIRS, samples=3, seed=7, settings={"select": "mbr"}).rows
    made = [systems["drawn"].generate(SOURCES, seed=seed, noise_beam=1).texts for seed in (7, 8, 9)]
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
