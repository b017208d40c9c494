"""Lines of metrics.jsonl: means since the last line, and the last values of terms that are only logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from noise2text.analysis.curves import read_metrics
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.training.callbacks import TrainingStart
from noise2text.training.loggers import MetricsFile
from noise2text.training.loop import StepReport
from noise2text.training.running_means import RunningMeans

from ..conftest import SMALL

STEPS = 7


def _report(step: int, **means: float) -> StepReport:
    values = {name: torch.tensor(value) for name, value in means.items()}
    return StepReport(step, torch.tensor(2.0 * step), values, torch.tensor(1.0), 0.1, torch.tensor(10))


def _lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_mean_is_over_the_steps_that_have_the_term() -> None:
    means = RunningMeans()
    for step in (1, 2, 3):
        means.add(_report(step, vlb=float(step)))
    means.add(_report(4, nll=7.0, vlb=4.0))
    first = means.take()
    means.add(_report(5, nll=5.0, vlb=5.0))
    second = means.take()
    names = ["loss", "nll", "vlb", "gradient", "rate", "tokens_per_second"]
    assert list(first) == list(second) == names  # as the objective orders them, whenever they come
    assert {name: first[name] for name in ("loss", "nll", "vlb")} == {"loss": 5.0, "nll": 7.0, "vlb": 2.5}
    assert (second["nll"], second["vlb"]) == (5.0, 5.0)


@pytest.fixture(scope="module")
def runs(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same run, logged at every step and at every third."""
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    names = (
        "tokenizer",
        "model_dim",
        "ffn_dim",
        "heads",
        "embedding_dim",
        "max_tokens",
        "warmup",
        "validation_sentences",
    )
    small = {name: SMALL[name] for name in names} | {"accumulate": 2, "generation.steps": 2}
    found = []
    for every in (1, 3):
        found.append(tmp_path_factory.mktemp("logged") / "run")
        changes = small | dict.fromkeys(("optim.steps", "validate_every", "save_every"), STEPS)
        changes["log_every"] = every
        train("diffuseq", out=found[-1], preset="tiny", changes=changes, device="cpu", **files)
    return found


def test_how_often_is_logged_changes_not_a_bit_of_the_weights(runs: list[Path]) -> None:
    often, seldom = (load_file(out / f"checkpoint-{STEPS:08d}" / "model.safetensors") for out in runs)
    assert often.keys() == seldom.keys()
    assert all(torch.equal(seldom[name], value) for name, value in often.items())


def test_terms_that_are_only_logged_have_the_value_of_that_step(runs: list[Path]) -> None:
    """Terms that are trained on have the mean since the last line."""
    often, seldom = ([line for line in _lines(out) if "loss" in line] for out in runs)
    assert [line["step"] for line in seldom] == [3, 6, 7]
    for line, since in zip(seldom, (often[:3], often[3:6], often[6:]), strict=True):
        assert list(line) == list(since[-1])
        assert line["vlb"] == pytest.approx(sum(each["vlb"] for each in since) / len(since), rel=1e-5)
        assert (line["nll"], line["nll_text"]) == (since[-1]["nll"], since[-1]["nll_text"])


@pytest.mark.parametrize("damage", ["[" * 100_000, '{"step": 1e999}', '{"step": ' + "9" * 5000 + "}", "[1]"])
def test_a_damaged_line_has_no_step_and_is_left_out_when_a_run_is_resumed(
    damage: str, tmp_path: Path
) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1, "loss": 2.0}}\n{damage}\n')
    MetricsFile().on_start(TrainingStart("difformer", None, tmp_path, 1, first_step=3, last_step=4))
    assert _lines(tmp_path) == [{"step": 1, "loss": 2.0}]
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1, "loss": 2.0}}\n{damage}\n{{"step": 2}}\n')
    with pytest.raises(Problem, match=r"metrics\.jsonl, line 2: this is not a JSON object of numbers"):
        read_metrics(tmp_path)
