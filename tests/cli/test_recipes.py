"""Recipes are listed as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

from .conftest import Outcome


def test_recipes_are_listed(run: Callable[..., Outcome]) -> None:
    rows = json.loads(run("recipes", "--json").out)
    assert set(rows[0]) == {"name", "paper", "section", "summary", "presets"}
    assert "difformer" in [row["name"] for row in rows]
    assert "qqp" in run("recipes").out
