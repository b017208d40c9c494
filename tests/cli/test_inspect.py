"""The facts about a model are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Outcome


def test_inspect_shows_size_settings_and_anisotropy(run: Callable[..., Outcome], model: Path) -> None:
    seen = json.loads(run("inspect", model, "--json").out)
    assert seen["model"]["recipe"] == "difformer"
    assert seen["model"]["parameters"] > 1000
    assert -1 <= seen["model"]["anisotropy"] <= 1
    assert seen["settings"]["model.model_dim"] == 32
    assert "anisotropy" in run("inspect", model).out


def test_values_are_in_a_column_under_headings(
    run: Callable[..., Outcome], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting is printed once, those of generation by the names of their options."""
    monkeypatch.setenv("COLUMNS", "80")
    headings, column = [], 0
    for block in run("inspect", model).out.split("\n\n"):
        heading, *rows = block.splitlines()
        headings.append(heading)
        names = [row.split()[0] for row in rows if row[2] != " "]
        assert len(set(names)) == len(names)
        column = max(map(len, names)) + 4
        assert all(row[column - 2 : column] == "  " and row[column] != " " for row in rows), heading
        assert max(map(len, rows)) <= 80
        if heading == "settings of generation":
            assert "steps" in names
    sections = ["data", "model", "diffusion", "optim", "run", "generation"]
    assert headings == ["model", *(f"settings of {section}" for section in sections)]
