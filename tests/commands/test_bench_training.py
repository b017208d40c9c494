"""Training is timed as a whole and in parts; baselines without steps say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from noise2text.cli import app
from noise2text.commands.bench_training import measure_accelerations, training_report
from noise2text.commands.profile_kernels import sum_by_kind
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.folder import save
from noise2text.models.registry import find_recipe

from ..conftest import SMALL, Make, shrunk


@pytest.mark.parametrize("self_conditioning", [0.5, 1.0])
def test_a_speed_has_whole_steps_and_their_parts(tokenizer: Tokenizer, self_conditioning: float) -> None:
    recipe = find_recipe("difformer")
    config = shrunk(recipe.preset("tiny"), noise_factor=2.0, self_conditioning=self_conditioning)
    (one,) = measure_accelerations(
        recipe, config, tokenizer, device=torch.device("cpu"), length=6, rows=4, steps=2
    )
    assert one.acceleration == "none"
    assert one.tokens_per_second == pytest.approx(6 * one.pairs_per_second)
    assert set(one.parts) == {"batch", "pass", "update"}
    assert one.parts["pass"] > 0
    assert one.peak_fraction > 0
    assert "1.00 × eager" in one.format_line(one.step_seconds)


def test_a_speed_can_have_the_time_of_each_kernel(tokenizer: Tokenizer) -> None:
    recipe = find_recipe("diffuseq")
    config = recipe.preset("tiny").replace({name: SMALL[name] for name in ("model_dim", "ffn_dim")})
    (one,) = measure_accelerations(
        recipe, config, tokenizer, device=torch.device("cpu"), length=6, rows=4, steps=1, kernels=True
    )
    kinds = sum_by_kind(one.kernels)
    assert {"products", "attention", "norms", "activations", "vocabulary"} <= kinds.keys()
    assert sum(kinds.values()) == pytest.approx(sum(one.kernels.values()))


def test_a_baseline_without_steps_has_no_training_speed(tokenizer: Tokenizer, tmp_path: Path) -> None:
    recipe, copied = find_recipe("copy"), tmp_path / "copied"
    save(copied, recipe.build(recipe.preset(), tokenizer), recipe="copy", config=recipe.preset())
    with pytest.raises(Problem, match="no training steps to time"):
        next(measure_accelerations(recipe, recipe.preset(), tokenizer, device=torch.device("cpu"), length=6))
    with pytest.raises(Problem, match="no training steps to time"):
        next(training_report(copied, device="cpu", precision="auto", length=6, rows=0, as_json=False))


def test_the_command_times_the_training_of_a_model_like_this_one(tmp_path: Path, small: Make) -> None:
    config = shrunk(find_recipe("difformer").preset("tiny"), noise_factor=2.0)
    save(tmp_path / "model", small(), recipe="difformer", config=config)
    wanted = [
        "bench",
        str(tmp_path / "model"),
        "--training",
        "--rows",
        "4",
        "--length",
        "6",
        "--device",
        "cpu",
    ]
    result = CliRunner().invoke(app, [*wanted, "--json"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.output)
    assert row["rows"] == 4
    assert row["pairs_per_second"] > 0
