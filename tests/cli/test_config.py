"""The config of a recipe is printed as YAML that `train --config` reads."""

from __future__ import annotations

from collections.abc import Callable

import yaml

from .conftest import Outcome


def test_the_config_of_a_preset_is_yaml(run: Callable[..., Outcome]) -> None:
    printed = yaml.safe_load(run("config", "difformer", "--preset", "tiny", "--set", "lr=0.5").out)
    assert printed["optim"]["lr"] == 0.5
    assert "lr_schedule" in printed["optim"]
