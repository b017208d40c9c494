"""What is timed, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Outcome


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batches", "8"], "--training times training steps"),
        (["--set", "select=mbr"], "--training times training steps"),
        (["--precision", "int4"], "precision"),
        (["--rows", "-3"], "not 25 and -3"),
    ],
)
def test_what_training_is_not_timed_by_is_refused(
    run: Callable[..., Outcome], model: Path, arguments: list[str], message: str
) -> None:
    outcome = run("bench", model, "--training", "--device", "cpu", *arguments)
    assert outcome.code == 1
    assert message in outcome.err


def test_bench_times_the_settings_that_it_is_told(run: Callable[..., Outcome], model: Path) -> None:
    """A setting that generation refuses is refused by what is timed."""
    few = ["--device", "cpu", "--batches", "1", "--steps", "1", "--candidates", "1", "--length", "5"]
    assert run("bench", model, *few).code == 0
    done = run("bench", model, *few, "--set", "guide=nowhere", "--set", "guide_class=may")
    assert done.code == 1
    assert "no classifier in nowhere" in done.err


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("steps", "--steps"),
        ("stop_early", "--steps"),
        ("noise_beam", "--candidates"),
        ("length", "--length"),
    ],
)
def test_bench_refuses_as_a_setting_what_it_has_an_option_for(
    run: Callable[..., Outcome], model: Path, setting: str, option: str
) -> None:
    done = run("bench", model, "--device", "cpu", "--set", f"{setting}=3")
    assert done.code == 1
    assert f"bench sets {setting} itself: use {option}" in done.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--rows", 4), "add --training"),
        (("--length", 0), "at least 1 token, not 0"),
        (("--set", "selected=mbr"), "there is no setting 'selected'"),
    ],
)
def test_bench_refuses_what_it_would_not_time(
    run: Callable[..., Outcome], model: Path, given: tuple[object, ...], said: str
) -> None:
    done = run("bench", model, *given)
    assert done.code == 1
    assert said in done.err
    assert not done.out
