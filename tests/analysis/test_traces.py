"""The table of traces shows evenly spaced steps of each system, then what it chose."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.traces import evenly_spaced, trace_table
from noise2text.core.errors import Problem
from noise2text.data.corpus import Pair
from noise2text.data.tokenizer import Tokenizer
from noise2text.models import GenerationOutput, TraceStep
from noise2text.models.folder import load, save
from noise2text.models.registry import find_recipe

from ..conftest import small_changes

analyze_traces = ANALYSES["traces"]

STEPS = [TraceStep(1 - place / 5, f"z{place}", f"x{place}") for place in range(5)]
PAIRS = [Pair("7 april 1957", "1957-04-07"), Pair("8 may 1999", "1999-05-08")]


@given(st.integers(1, 50), st.integers(1, 60))
def test_steps_are_spaced_evenly_from_the_first_to_the_last(total: int, count: int) -> None:
    steps = [TraceStep(1 - place / total, "", str(place)) for place in range(total)]
    places = [int(step.text) for step in evenly_spaced(steps, count)]
    assert len(places) == min(total, count)
    assert places[-1] == total - 1
    if count > 1:
        assert places[0] == 0
        gaps = [after - before for before, after in itertools.pairwise(places)]
        assert not gaps or (min(gaps) >= 1 and max(gaps) - min(gaps) <= 1)


def test_a_table_by_hand() -> None:
    diffusion = GenerationOutput(texts=["end"], traces=[STEPS])
    other = GenerationOutput(texts=["said at once"], traces=[[]])
    found = trace_table(PAIRS[:1], {"ours": diffusion, "theirs": other}, shown_steps=3, signature="seed:0")
    assert found.draw is None
    assert [(row["system"], row["time"], row["noisy"], row["text"]) for row in found.rows] == [
        ("ours", 1.0, "z0", "x0"),
        ("ours", 0.6, "z2", "x2"),
        ("ours", pytest.approx(0.2), "z4", "x4"),
        ("ours", None, None, "end"),
        ("theirs", None, None, "said at once"),
    ]
    assert {(row["source"], row["reference"]) for row in found.rows} == {("7 april 1957", "1957-04-07")}


def keep(name: str, folder: Path, tokenizer: Tokenizer) -> Path:
    """A small untrained model's folder."""
    config = find_recipe(name).preset("tiny").replace(small_changes(name, {}))
    torch.manual_seed(0)
    save(folder, find_recipe(name).build(config, tokenizer), recipe=name, config=config)
    return folder


def test_the_models_are_shown_as_they_generate(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folders = [keep(name, tmp_path / name, tokenizer) for name in ("diffuseq", "transformer", "copy")]
    options = {"sentences": 2, "shown_steps": 4}
    inputs = Inputs(models=folders, pairs=[*PAIRS, *PAIRS], options=options, seed=3, device="cpu")
    (found,) = analyze_traces(inputs)
    made = load(folders[0], device="cpu").generate([pair.src for pair in PAIRS], seed=3, trace=True)
    rows = [row for row in found.rows if row["system"] == "diffuseq"]
    assert [row["text"] for row in rows] == [
        text
        for steps, chosen in zip(made.traces, made.texts, strict=True)
        for text in (*(step.text for step in evenly_spaced(steps, 4)), chosen)
    ]
    assert [row["text"] for row in found.rows if row["system"] == "copy"] == [pair.src for pair in PAIRS]
    growing = [str(row["text"]) for row in found.rows if row["system"] == "transformer"][:4]
    assert all(after.startswith(before) for before, after in itertools.pairwise(growing))
    assert "seed:3" in found.signature


def test_models_that_write_at_once_have_nothing_to_trace(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(Problem, match="add a diffusion model"):
        analyze_traces(Inputs(models=[keep("copy", tmp_path, tokenizer)], pairs=PAIRS, device="cpu"))
