"""2D parallel decoding: as many candidates as asked for, each from its own length and noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.ragged import RaggedRows
from noise2text.generation.config import LengthPredictingGenerationConfig
from noise2text.generation.decoder import SentenceCandidates, SourceBatch
from noise2text.models import LengthPredictingModel

from ..conftest import Make

ROWS = [[8, 9, 10, 11, 12], [13, 14], [20]]


def decode(
    model: LengthPredictingModel,
    rows: list[list[int]] = ROWS,
    indices: list[int] | None = None,
    **options: Any,
) -> list[SentenceCandidates]:
    config = LengthPredictingGenerationConfig(
        **({"steps": 6, "stop_early": 2, "length_beam": 3, "noise_beam": 2} | options)
    )
    batch = SourceBatch(rows, indices or [0, 1, 2])
    return model.build_decoder(config).decode(batch, trace=True)


def test_there_are_length_beam_times_noise_beam_candidates_and_a_step_for_each_time(
    small: Make,
) -> None:
    decoded = decode(small())
    assert len(decoded) == len(ROWS)
    for candidates in decoded:
        assert len(candidates.tokens) == len(candidates.scores) == 6
        lengths = [len(row) for row in candidates.tokens]
        assert lengths[0] == lengths[1]
        assert len(set(lengths)) == 3
        assert len(candidates.steps) == 4
        times = [step.time for step in candidates.steps]
        assert times == sorted(times, reverse=True)
        assert candidates.steps[-1].clean == candidates.tokens
        assert all([len(row) for row in step.noisy] == lengths for step in candidates.steps)


@pytest.mark.parametrize("options", [{}, {"strategy": "token-by-token"}])
def test_the_stages_one_after_another_are_decode(options: dict[str, Any], small: Make) -> None:
    model = small()
    config = LengthPredictingGenerationConfig(steps=4, stop_early=1, length_beam=2, **options)
    decoder, batch = model.build_decoder(config), SourceBatch(ROWS, [4, 7, 2], seeds=1)
    value: Any = batch
    for stage in decoder.stages(trace=True):
        value = stage(value)
    assert value == decoder.decode(batch, trace=True)
    traceless = decoder.decode(batch)  # a trace changes nothing else
    assert [dataclasses.replace(candidates, steps=[]) for candidates in value] == traceless


def test_a_sentence_is_decoded_alike_in_any_batch(small: Make) -> None:
    model = small()
    together = decode(model)
    alone = [decode(model, [row], [index])[0] for index, row in enumerate(ROWS)]
    for candidates, single in zip(together, alone, strict=True):
        assert candidates.tokens == single.tokens
        assert candidates.scores == pytest.approx(single.scores, abs=1e-4)


def test_special_tokens_are_never_written(small: Make) -> None:
    model = small()
    written = {token for candidates in decode(model) for row in candidates.tokens for token in row}
    assert not written & model.tokenizer.special_tokens


def test_the_score_is_the_mean_log_probability_plus_the_lengths(
    small: Make,
) -> None:
    model = small()
    candidates = decode(model, [ROWS[0]], [0], noise_beam=1)[0]
    source = model.layout.make_source(RaggedRows.from_lists([ROWS[0]]))
    scores = model.lengths.log_probs(model.denoiser.encode(source))[0]
    for row, score in zip(candidates.tokens, candidates.scores, strict=True):
        length_score = scores[len(row) - len(ROWS[0]) + model.lengths.max_offset].item()
        assert score <= length_score  # log-probabilities are negative
        assert score - length_score > -torch.log(torch.tensor(float(len(model.tokenizer)))) - 3


def test_a_candidate_depends_on_its_index_and_length_not_on_the_beam(
    small: Make,
) -> None:
    model = small()
    wide = decode(model, [ROWS[0]], [5], length_beam=3)[0].tokens
    narrow = decode(model, [ROWS[0]], [5], length_beam=1)[0].tokens
    assert wide[:2] == narrow
    elsewhere = decode(model, [ROWS[0]], [6], length_beam=1)[0]
    assert elsewhere.scores != decode(model, [ROWS[0]], [5], length_beam=1)[0].scores


def test_a_length_that_comes_again_has_other_noise_and_changes_nothing_else(small: Make) -> None:
    model = small()
    decoder = model.build_decoder(LengthPredictingGenerationConfig(steps=3, stop_early=0, noise_beam=2))

    def noises(*lengths: int) -> list[list[int]]:
        """What the canvas of each candidate starts as."""
        fixed = dataclasses.replace(
            decoder, propose_lengths=lambda encoded: (torch.tensor([lengths]), torch.zeros(1, len(lengths)))
        )
        (candidates,) = fixed.decode(SourceBatch([ROWS[0]], [0]), trace=True)
        return candidates.steps[0].noisy

    once, again = noises(6, 7), noises(6, 7, 6)
    assert again[:4] == once
    assert len({tuple(row) for row in again}) == 6


def test_ddim_and_clamping_change_the_samples(small: Make) -> None:
    model = small()
    plain = [candidates.scores for candidates in decode(model)]
    assert [candidates.scores for candidates in decode(model, eta=0.0)] != plain
    assert [candidates.scores for candidates in decode(model, clamp=True)] != plain


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
        dataclasses.replace(LengthPredictingGenerationConfig(), **changes)


def test_the_defaults_are_the_papers() -> None:
    options = LengthPredictingGenerationConfig()
    assert (options.steps, options.stop_early, options.length_beam * options.noise_beam) == (20, 5, 10)
