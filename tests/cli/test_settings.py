"""The settings of a recipe are listed."""

from __future__ import annotations

from collections.abc import Callable

from .conftest import Outcome


def test_the_settings_of_a_preset_are_listed(run: Callable[..., Outcome]) -> None:
    assert "lr_schedule" in run("settings", "difformer", "--preset", "tiny").out
