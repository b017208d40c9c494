"""Word generation is DiffuSeq with T = 200; each step shows one word, drawn by seed, step and row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text.commands.display import SilentDisplay
from noise2text.commands.run_data import load_data
from noise2text.commands.training_run import TrainingRun
from noise2text.core.config import describe, get_setting
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.parameterization import ParameterizedDenoiser
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.models.registry import find_recipe
from noise2text.recipes import diffuseq, diffuseq_autoregressive
from noise2text.recipes.word_by_word import PRESETS, WordByWordConfig

from ..conftest import shrunk

THESIS_4_2_2 = {  # item 1, and algorithm 9; the rest is DiffuSeq's of 4.1.2
    "num_timesteps": 200,
    "generation.steps": 200,
    "time_sampler": "uniform",
    "loss_positions": "algorithm-6",
    "word_boundary": "spaces",
    "max_word_tokens": None,
}


@pytest.mark.parametrize("row", THESIS_4_2_2)
def test_the_preset_is_the_thesis(row: str) -> None:
    assert get_setting(PRESETS["covost-de-en"], row) == THESIS_4_2_2[row]


def test_all_else_is_diffuseqs(tokenizer: Tokenizer) -> None:
    own = {"generation.strategy"} | {f"diffusion.{name}" for name in THESIS_4_2_2} | set(THESIS_4_2_2)
    for preset, base in (("covost-de-en", "covost-de-en"), ("tiny-published", "tiny")):
        theirs = {name: value for name, value, _ in describe(diffuseq.PRESETS[base])}
        ours = {name: value for name, value, _ in describe(PRESETS[preset])}
        assert {name for name in ours if name not in own and ours[name] != theirs[name]} == set()
    recipe = find_recipe("word-by-word")
    objective = recipe.objective(PRESETS["tiny"], recipe.build(PRESETS["tiny"], tokenizer))
    assert isinstance(objective.time_sampler, UniformTimes)


def test_diffuseqs_parts_are_parts_of_it_too(tokenizer: Tokenizer) -> None:
    config = shrunk(PRESETS["tiny"], parameterization="epsilon", source_dropout=0.3, guidance_weight=0.5)
    model = find_recipe("word-by-word").build(config, tokenizer)
    assert isinstance(model.denoiser, ParameterizedDenoiser)
    assert model.source_dropout == 0.3
    assert len(model.generate(["7 april"], steps=2).texts) == 1


def test_autoregressive_sampling_has_the_same_model_and_another_strategy(tokenizer: Tokenizer) -> None:
    presets = diffuseq_autoregressive.PRESETS
    assert presets["covost-de-en"].replace(strategy="parallel") == diffuseq.PRESETS["covost-de-en"]
    model = find_recipe("diffuseq-autoregressive").build(presets["tiny"], tokenizer)
    assert model.generation_config.strategy == "token-by-token"


def canvases(dates: Path, out: Path, step: int, **changes: Any) -> list[torch.Tensor]:
    """The given positions of a run's batches at a step."""
    config = shrunk(PRESETS["tiny"], **changes)
    files = str(dates / "train.jsonl"), str(dates / "valid.jsonl")
    data = load_data(*files, out / "data", config, skip_bad=False, show_line=lambda line: None)
    run = TrainingRun(find_recipe("word-by-word"), config, data, out, torch.device("cpu"), SilentDisplay())
    return [canvas.given for canvas in run.batches(step)]


def test_the_words_of_a_step_are_a_function_of_seed_step_and_row(dates: Path, tmp_path: Path) -> None:
    first, again = (canvases(dates, tmp_path / name, 3, accumulate=2) for name in "ab")
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    other = canvases(dates, tmp_path / "c", 3, accumulate=2, seed=1)
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0].sum(1), first[1].sum(1))  # each micro-batch has rows of its own


def test_positions_after_the_next_word_are_not_counted(tokenizer: Tokenizer) -> None:
    from noise2text.data.ragged import RaggedRows

    recipe = find_recipe("word-by-word")
    config = shrunk(PRESETS["tiny"], max_source=8, max_target=10, max_word_tokens=3)
    model = recipe.build(config, tokenizer)
    objective = recipe.objective(config, model)
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8, 9], [8]]), RaggedRows.from_lists([[20, 21], [22]])
    )
    canvas = model.layout.randomize(canvas, torch.zeros(2))
    token_losses = objective(canvas, objective.draw(canvas, make_key(torch.arange(2)), make_key(0)))
    assert token_losses["vlb"].mask.sum(1).tolist() == [4 + 3, 3 + 3]
    assert token_losses["rounding"].mask.sum(1).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"word_boundary": "letters"}, "word_boundary"), ({"max_word_tokens": 0}, "max_word_tokens")],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        WordByWordConfig().replace(changes)
