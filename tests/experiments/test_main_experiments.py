"""The main tables of the papers run whole at a toy scale: every arm, its numbers and the paper's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noise2text.commands.display import SilentDisplay
from noise2text.core.config import has_setting
from noise2text.core.errors import Stopped
from noise2text.experiments import EXPERIMENTS, corpus_files
from noise2text.experiments.experiment import Experiment
from noise2text.experiments.run_experiment import run_experiment
from noise2text.models.registry import find_recipe

TOY: dict[str, Any] = {
    "optim.steps": 2,
    "warmup": 1,
    "log_every": 1,
    "model_dim": 16,
    "ffn_dim": 16,
    "heads": 2,
    "layers": 1,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_tokens": 96,
    "noise_factor": 2.0,
    "validation_sentences": 1,
    "generation.steps": 2,
    "generation.stop_early": 0,
    "iterations": 1,
    "beam": 1,
}
"""Settings that make every model of the tables train and generate in a moment."""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose experiments share models, and whose corpus is small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_files, "PAIRS", 60)
        yield tmp_path_factory.mktemp("experiments")


def toy_changes(experiment: Experiment) -> dict[str, Any]:
    """Those toy settings that a model of the experiment has and that its arms do not differ in."""
    known = {}
    for setting, value in TOY.items():
        presets = [find_recipe(model.recipe).preset("tiny") for model in experiment.models()]
        if any(has_setting(config, setting) for config in presets):
            known[setting] = value
    return known


class StopInTraining(SilentDisplay):
    """Presses Ctrl-C after the first step of a training."""

    def progress(self, step: int, summary: str) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["difformer-main", "diffuseq-main", "seqdiffuseq-main", "thesis-collapse"])
def test_a_main_table_comes_out_whole_after_a_stop(name: str, toy: Path) -> None:
    experiment = EXPERIMENTS[name]
    options: dict[str, Any] = {"changes": toy_changes(experiment), "sentences": 2, "device": "cpu"}
    with pytest.raises(Stopped):
        run_experiment(experiment, toy, seeds=2, display=StopInTraining(), **options)
    found = run_experiment(experiment, toy, seeds=2, **options)
    measured = set(experiment.measures_at("tiny"))
    for arm, row in zip(experiment.arms, found["rows"], strict=True):
        assert (row["arm"], row["failures"], row["seeds"]) == (arm.name, [], 2)
        assert row["paper"] == dict(arm.paper)
        assert {"bleu", "exact_match"} <= set(row["means"]) & set(row["spreads"]) <= measured
    page = (toy / name / "tiny" / "table.md").read_text()
    assert "Spearman's ρ" in page
    assert "mean ± standard deviation" in page
    for arm in experiment.arms:
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {arm.name} "))
        assert all(f"{number:.2f}" in line for number in arm.paper.values())
        assert line.count("±") >= 2
