"""A noise factor is found for random embeddings or for a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Outcome


def test_rescale_finds_a_factor(run: Callable[..., Outcome], model: Path) -> None:
    done = run("rescale", "--schedule", "sqrt", "--vocab", 100, "--dim", 16, "--target", 0.15, "--json")
    found = json.loads(done.out)
    assert set(found) == {"factor", "dgs", "dgs_unscaled"}
    assert found["dgs"] <= 0.15 < found["dgs_unscaled"]
    preserving = run(
        "rescale", "--vocab", 100, "--dim", 16, "--target", 0.15, "--variance-preserving", "--json"
    )
    assert json.loads(preserving.out)["dgs"] <= 0.15
    trained = run("rescale", model, "--target", 0.2, "--json")
    assert json.loads(trained.out)["dgs"] <= 0.2


@pytest.mark.parametrize("ignored", [("--vocab", 20), ("--dim", 3), ("--schedule", "linear")])
def test_rescale_refuses_what_a_model_decides_itself(
    run: Callable[..., Outcome], model: Path, ignored: tuple[object, ...]
) -> None:
    done = run("rescale", model, *ignored)
    assert done.code == 1
    assert "its own schedule and embeddings" in done.err


def test_an_unknown_schedule_is_refused_with_the_known_ones(run: Callable[..., Outcome]) -> None:
    done = run("rescale", "--schedule", "quadratic")
    assert done.code == 1
    assert "one of sqrt, linear, cosine, not 'quadratic'" in done.err
