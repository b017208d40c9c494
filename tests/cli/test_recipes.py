"""Recipes are listed as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

from .conftest import Outcome


def test_recipes_are_listed(run: Callable[..., Outcome]) -> None:
    rows = json.loads(run("recipes", "--json").out)
    assert set(rows[0]) == {"name", "paper", "section", "summary", "presets", "measured"}
    assert "difformer" in [row["name"] for row in rows]
    assert "qqp" in run("recipes").out


def test_the_measured_figures_are_shown_with_their_commands(run: Callable[..., Outcome]) -> None:
    out = run("recipes").out
    assert "98.8 % of the test dates are exact, 84 s of one core" in out
    assert "train RECIPE --preset tiny" in out
    rows = {row["name"]: row["measured"] for row in json.loads(run("recipes", "--json").out)}
    assert rows["cdcd"]["tiny"]["exact_match"] == 98.8
    assert rows["copy"] == {}
