"""Small runs to report on, and a page about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noise2text.commands.train import train
from noise2text.core.config import has_setting
from noise2text.models.registry import find_recipe
from noise2text.report.report import report
from noise2text.report.report_data import ReportConfig

from ..conftest import SMALL

FEW_STEPS: dict[str, Any] = {
    "generation.steps": 6,
    "generation.stop_early": 0,
    "noise_beam": 2,
    "length_beam": 2,
}


def train_small(recipe: str, dates: Path, out: Path) -> Path:
    """A run of a few steps."""
    config = find_recipe(recipe).preset("tiny")
    wanted = SMALL | FEW_STEPS | {"optim.steps": 4, "validate_every": 2}
    changes = {name: value for name, value in wanted.items() if has_setting(config, name)}
    files = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    train(recipe, **files, out=out, preset="tiny", changes=changes, device="cpu")  # type: ignore[arg-type]
    return out


@pytest.fixture(scope="session")
def runs(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A diffusion model, an autoregressive one, and one that learns nothing, by recipe."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        recipe: train_small(recipe, dates, folder / recipe) for recipe in ("difformer", "transformer", "copy")
    }


@pytest.fixture(scope="session")
def written(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page about all of them, on the pairs that they were validated on."""
    out = tmp_path_factory.mktemp("pages") / "report.html"
    report(list(runs.values()), out=out, config=ReportConfig(sentences=12, device="cpu"))
    return out.read_text(encoding="utf-8")
