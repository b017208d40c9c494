"""2D parallel decoding: as many candidates as asked for, each from its own length and noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.ragged import Rows
from noise2text.generation.config import LengthSettings
from noise2text.generation.parallel import Draft, finish
from noise2text.models import LengthDiffusion

from ..conftest import Make

ROWS = [[8, 9, 10, 11, 12], [13, 14], [20]]


def decode(
    system: LengthDiffusion, rows: list[list[int]] = ROWS, places: list[int] | None = None, **how: Any
) -> list[Draft]:
    settings = LengthSettings(**({"steps": 6, "stop_early": 2, "length_beam": 3, "noise_beam": 2} | how))
    return system.drafts(rows, settings, seed=how.pop("seed", 0), places=places or [0, 1, 2], trace=True)


def test_there_are_length_beam_times_noise_beam_candidates_and_a_step_for_each_time(
    small: Make,
) -> None:
    for draft in decode(small()):
        assert len(draft.tokens) == len(draft.scores) == 6
        lengths = [len(row) for row in draft.tokens]
        assert lengths[0] == lengths[1]
        assert len(set(lengths)) == 3
        assert len(draft.steps) == 4
        times = [step.time for step in draft.steps]
        assert times == sorted(times, reverse=True)
        assert draft.steps[-1].clean == draft.tokens
        assert all([len(row) for row in step.noisy] == lengths for step in draft.steps)


def test_special_tokens_are_never_written(small: Make) -> None:
    system = small()
    written = {token for draft in decode(system) for row in draft.tokens for token in row}
    assert not written & system.tokenizer.specials


def test_the_score_is_the_mean_log_probability_plus_the_lengths(
    small: Make,
) -> None:
    system = small()
    draft = decode(system, [ROWS[0]], [0], noise_beam=1)[0]
    source = system.layout.source(Rows.of([ROWS[0]]))
    scores = system.lengths.log_probabilities(system.denoiser.read(source))[0]
    for row, score in zip(draft.tokens, draft.scores, strict=True):
        length_score = scores[len(row) - len(ROWS[0]) + system.lengths.reach].item()
        assert score <= length_score  # log-probabilities are negative
        assert score - length_score > -torch.log(torch.tensor(float(len(system.tokenizer)))) - 3


def test_a_candidate_depends_on_its_place_and_length_not_on_the_beam(
    small: Make,
) -> None:
    system = small()
    wide = decode(system, [ROWS[0]], [5], length_beam=3)[0].tokens
    narrow = decode(system, [ROWS[0]], [5], length_beam=1)[0].tokens
    assert wide[:2] == narrow
    elsewhere = decode(system, [ROWS[0]], [6], length_beam=1)[0]
    assert elsewhere.scores != decode(system, [ROWS[0]], [5], length_beam=1)[0].scores


def test_a_length_that_comes_again_has_other_noise_and_changes_nothing_else(small: Make) -> None:
    system = small()
    strategy = system.strategy(LengthSettings(steps=3, stop_early=0, noise_beam=2))

    def noises(*lengths: int) -> list[list[list[int]]]:
        """What the canvas of each candidate starts as."""
        course = strategy.course(
            system.layout.source(Rows.of([ROWS[0]])),
            LengthSettings(steps=3, stop_early=0, noise_beam=2),
            lambda memory: (torch.tensor([lengths]), torch.zeros(1, len(lengths))),
            seed=0,
            places=torch.tensor([0]),
            trace=True,
        )
        return finish(course)[0].steps[0].noisy  # type: ignore[return-value]

    once, again = noises(6, 7), noises(6, 7, 6)
    assert again[:4] == once
    assert len({tuple(row) for row in again}) == 6


def test_ddim_and_clamping_are_other_walks(small: Make) -> None:
    system = small()
    plain = [draft.scores for draft in decode(system)]
    assert [draft.scores for draft in decode(system, eta=0.0)] != plain
    assert [draft.scores for draft in decode(system, clamp=True)] != plain


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 5, "stop_early": 5}, "stop_early"),
        ({"eta": 2.0}, "eta"),
        ({"select": "best"}, "select"),
        ({"lengths": "all"}, "lengths"),
        ({"length_beam": 0}, "length_beam"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        dataclasses.replace(LengthSettings(), **changes)


def test_the_defaults_are_the_papers() -> None:
    how = LengthSettings()
    assert (how.steps, how.stop_early, how.length_beam * how.noise_beam) == (20, 5, 10)
