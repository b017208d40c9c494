"""What the analyses that generate have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.finding import write_findings
from noise2text.analysis.generation import GenerationOptions, collect_references, draw_samples, score_samples
from noise2text.analysis.inputs import Inputs
from noise2text.core.errors import Problem

from .models import PAIRS, SOURCES, find_model_folder, tiny

OPTIONS = {
    "sampling": {"generation": "steps=3,stop_early=0", "noises": "2"},
    "from-noise": {"points": "2"},
    "degeneration": {"samples": "20", "cells": "3"},
    "candidates": {"counts": "1,2", "generation": "steps=2, stop_early=0"},
    "steps": {"counts": "1,2"},
    "diversity": {"samples": "2", "generation": "steps=2,stop_early=0"},
    "positions": {"points": "3"},
    "embeddings": {"tokens": "= ?"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_analysis_of_models_compares_several_and_is_written_and_drawn(
    name: str, tmp_path: Path
) -> None:
    folders = [find_model_folder(recipe, tmp_path / recipe) for recipe in ("difformer", "diffuseq")]
    inputs = Inputs(models=folders, pairs=PAIRS, options=OPTIONS[name], device="cpu")
    found = ANALYSES[name](inputs)
    assert len({finding.name for finding in found}) == len(found)
    for finding in found:
        files = write_findings([finding], tmp_path / "out")[finding.name]
        assert finding.rows
        assert all(file.stat().st_size for file in files)
        assert len(files) == (2 if finding.draw is None else 4)
    if name not in ("degeneration", "positions", "embeddings"):
        assert {row["model"] for row in found[0].rows} == {"difformer", "diffuseq"}
        assert "sentences:3" in found[0].signature
        assert "difformer:steps=" in found[0].signature


def test_only_the_first_pairs_are_answered(tmp_path: Path) -> None:
    folder = find_model_folder("diffuseq", tmp_path / "own")
    options = {"sentences": "2", "counts": "1"}
    [found] = ANALYSES["steps"](Inputs(models=[folder], pairs=PAIRS, options=options, device="cpu"))
    assert "sentences:2" in found.signature


def test_a_sample_is_what_generate_writes_from_the_next_seed() -> None:
    system = tiny("seqdiffuseq")
    made = draw_samples(system, PAIRS, count=3, seed=4, settings={"steps": 2})
    assert [one.texts for one in made] == [
        system.generate(SOURCES, seed=seed, steps=2).texts for seed in (4, 5, 6)
    ]
    with pytest.raises(Problem, match="At least 1 sample"):
        draw_samples(system, PAIRS, count=0)


def test_right_answers_score_a_hundred_and_a_lone_sample_has_no_diversity() -> None:
    right = [pair.trg for pair in PAIRS]
    assert score_samples([right], PAIRS) == {"bleu": pytest.approx(100), "div_4": None, "self_bleu": None}
    assert score_samples([right, right], PAIRS)["self_bleu"] == pytest.approx(100)


def test_no_pairs_and_bad_settings_are_named() -> None:
    with pytest.raises(Problem, match="nothing to analyse"):
        collect_references([])
    with pytest.raises(Problem, match="nothing to analyse"):
        draw_samples(tiny("copy"), [])
    with pytest.raises(Problem, match="key=value"):
        GenerationOptions(generation="steps").settings()
    with pytest.raises(Problem, match="sentences"):
        GenerationOptions(sentences=0)


def test_a_model_looks_the_same_in_every_panel_and_is_named_once() -> None:
    from matplotlib.figure import Figure

    from noise2text.analysis.generation import plot_by_model

    rows = [
        {"model": model, "x": x, "a": x, "b": None if model == "first" else x}
        for model in ("first", "second")
        for x in (1, 2)
    ]
    figure = Figure(layout="constrained")
    plot_by_model(figure, rows=rows, x="x", label="x", columns=["a", "b"])
    left, right = ({line.get_label(): line.get_color() for line in axes.lines} for axes in figure.axes)
    assert left == right
    assert [words.get_text() for words in figure.legends[0].texts] == ["first", "second"]
    assert all(axes.get_legend() is None for axes in figure.axes)
