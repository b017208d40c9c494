"""Word generation is DiffuSeq with T = 200; each step shows one word, drawn by seed, step and row."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text.commands.display import Quiet
from noise2text.commands.run_data import open_data
from noise2text.commands.train import Run
from noise2text.core.errors import Problem
from noise2text.core.random import key
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.time_samplers import Uniform
from noise2text.models.registry import find_recipe
from noise2text.recipes import diffuseq, diffuseq_autoregressive
from noise2text.recipes.word_by_word import PRESETS, WordByWordSettings

from ..conftest import SMALL

CHANGES = {name: value for name, value in SMALL.items() if not name.endswith("coder_layers")}
THESIS_4_2_2 = {  # item 1, and algorithm 9; the rest is DiffuSeq's of 4.1.2
    "diffusion_steps": 200,
    "generation_steps": 200,
    "times": "uniform",
    "coverage": "algorithm-6",
    "words": "spaces",
    "reach": None,
}


@pytest.mark.parametrize("row", THESIS_4_2_2)
def test_the_preset_is_the_thesis(row: str) -> None:
    assert getattr(PRESETS["covost-de-en"], row) == THESIS_4_2_2[row]


def test_all_else_is_diffuseqs(tokenizer: Tokenizer) -> None:
    own = set(THESIS_4_2_2)
    for preset in ("covost-de-en", "tiny"):
        theirs, ours = (dataclasses.asdict(presets[preset]) for presets in (diffuseq.PRESETS, PRESETS))
        assert {name for name in ours if name not in own and ours[name] != theirs[name]} == set()
    recipe = find_recipe("word-by-word")
    objective = recipe.objective(PRESETS["tiny"], recipe.build(PRESETS["tiny"], tokenizer))
    assert isinstance(objective.times, Uniform)


def test_autoregressive_sampling_has_the_same_model_and_another_strategy(tokenizer: Tokenizer) -> None:
    presets = diffuseq_autoregressive.PRESETS
    assert presets["covost-de-en"] == diffuseq.PRESETS["covost-de-en"]
    system = find_recipe("diffuseq-autoregressive").build(presets["tiny"], tokenizer)
    assert system.how.strategy == "token-by-token"


def canvases(dates: Path, out: Path, step: int, **changes: Any) -> list[torch.Tensor]:
    """The frozen masks that a run is fed at a step."""
    settings = dataclasses.replace(PRESETS["tiny"], **(CHANGES | changes))
    files = str(dates / "train.jsonl"), str(dates / "valid.jsonl")
    data = open_data(*files, out / "data", settings, skip_bad=False, say=lambda line: None)
    run = Run(find_recipe("word-by-word"), settings, data, out, torch.device("cpu"), Quiet())
    return [canvas.frozen for canvas in run._feed(step)]


def test_the_words_of_a_step_are_a_function_of_seed_step_and_row(dates: Path, tmp_path: Path) -> None:
    first, again = (canvases(dates, tmp_path / name, 3, accumulate=2) for name in "ab")
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    other = canvases(dates, tmp_path / "c", 3, accumulate=2, seed=1)
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0].sum(1), first[1].sum(1))  # each micro-batch has rows of its own


def test_what_is_out_of_reach_is_not_counted(tokenizer: Tokenizer) -> None:
    from noise2text.data.ragged import Rows

    recipe = find_recipe("word-by-word")
    settings = dataclasses.replace(
        PRESETS["tiny"], **(CHANGES | {"max_source": 8, "max_target": 10, "reach": 3})
    )
    system = recipe.build(settings, tokenizer)
    objective = recipe.objective(settings, system)
    canvas = system.layout.canvas(Rows.of([[8, 9], [8]]), Rows.of([[20, 21], [22]]))
    canvas = system.layout.vary(canvas, torch.zeros(2))
    tallies = objective(canvas, objective.draw(canvas, key(torch.arange(2)), key(0)))
    assert tallies["vlb"].mask.sum(1).tolist() == [4 + 3, 3 + 3]
    assert tallies["rounding"].mask.sum(1).tolist() == [3, 3]


@pytest.mark.parametrize(("changes", "named"), [({"words": "letters"}, "words"), ({"reach": 0}, "reach")])
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        dataclasses.replace(WordByWordSettings(), **changes)
