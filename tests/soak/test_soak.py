"""A short version of `make soak`: training on one process and on two, and the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from .service import FEW_FILES, attack_service
from .training import attack_training


@pytest.mark.long
def test_killed_runs_end_as_undisturbed_ones(tmp_path: Path) -> None:
    figures = attack_training(tmp_path, seconds=600, seed=1, kills=3, most_runs=2)
    assert figures["kills at random moments"] == 4
    assert figures["runs on 1 equal to the undisturbed one"] == 1
    assert figures["runs on 2 equal to the undisturbed one"] == 1


@pytest.mark.long
def test_an_attacked_service_answers_rightly_and_its_silent_connections_too(tmp_path: Path) -> None:
    """More connections than a process may usually have files."""
    figures, _ = attack_service(tmp_path, seconds=2, seed=0, connections=3 * FEW_FILES)
    assert figures["requests answered rightly"] > 3 * FEW_FILES
    assert figures["silent connections answered at last"] == 3 * FEW_FILES
