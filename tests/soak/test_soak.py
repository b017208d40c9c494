"""A short version of `make soak`: one run on one process and one on two, each killed a few times."""

from __future__ import annotations

from pathlib import Path

import pytest

from .soak import soak


@pytest.mark.long
def test_killed_runs_end_as_undisturbed_ones(tmp_path: Path) -> None:
    done = soak(tmp_path, seconds=600, seed=1, kills=3, most_runs=2)
    assert done.figures["kills"] == 6
    assert done.figures["runs on 1 equal to the undisturbed one"] == 1
    assert done.figures["runs on 2 equal to the undisturbed one"] == 1
