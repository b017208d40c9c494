"""The facts about a model are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from .conftest import Outcome


def test_inspect_shows_size_settings_and_anisotropy(run: Callable[..., Outcome], model: Path) -> None:
    seen = json.loads(run("inspect", model, "--json").out)
    assert seen["model"]["recipe"] == "difformer"
    assert seen["model"]["parameters"] > 1000
    assert -1 <= seen["model"]["anisotropy"] <= 1
    assert seen["settings"]["model.model_dim"] == 32
    assert "anisotropy" in run("inspect", model).out
