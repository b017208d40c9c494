"""Sampling stops when the tokens are stable and sure: with the texts of that step, in any batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from noise2text.acceleration import cuda_graphs
from noise2text.acceleration.cuda_graphs import CudaGraphExecutor
from noise2text.core.errors import Problem
from noise2text.generation.config import LengthPredictingGenerationConfig
from noise2text.generation.decoder import SentenceCandidates, SourceBatch, TokenTraceStep
from noise2text.generation.mixed_batches import BatchPart, join_stages
from noise2text.models import LengthPredictingModel

from ..acceleration.test_cuda_graphs import Replayed
from ..conftest import Make

ROWS = [[8, 9, 10, 11, 12], [13, 14], [20]]
SURE = 0.42  # at which the candidates of the model below stop at various steps


@pytest.fixture
def model(small: Make) -> LengthPredictingModel:
    """An untrained model with larger weights, so that its tokens depend on the noise and can be sure."""
    made = small()
    weights = dict(made.denoiser.named_parameters())
    with torch.no_grad():
        weights["input_projection.weight"].mul_(3)
        weights["output_projection.weight"].mul_(60)
    return made


def decode(
    model: LengthPredictingModel,
    stop_when_sure: float,
    rows: list[list[int]] = ROWS,
    indices: tuple[int, ...] = (0, 1, 2),
    **options: Any,
) -> list[SentenceCandidates]:
    config = LengthPredictingGenerationConfig(
        steps=25, stop_early=0, length_beam=2, noise_beam=2, stop_when_sure=stop_when_sure, **options
    )
    return model.build_decoder(config).decode(SourceBatch(rows, indices), trace=True)


def stopping_step(steps: list[TokenTraceStep], candidate: int, min_probability: float) -> int:
    """The first step at which a candidate is as it was one step before, and sure; else the last one."""
    for number in range(1, len(steps)):
        is_stable = steps[number].clean[candidate] == steps[number - 1].clean[candidate]
        if is_stable and min(steps[number].confidence[candidate]) >= min_probability:
            return number
    return len(steps) - 1


@pytest.mark.parametrize(
    ("options", "sure"),
    [({}, SURE), ({"eta": 0.0}, SURE), ({"clamp": True}, 0.1), ({"solver": "multistep"}, SURE)],
)
def test_each_candidate_is_what_it_was_when_it_first_was_stable_and_sure(
    options: dict[str, Any], sure: float, model: LengthPredictingModel
) -> None:
    whole, stopped = decode(model, 1.0, **options), decode(model, sure, **options)
    last = max(stopping_step(each.steps, c, sure) for each in whole for c in range(4))
    earliest = min(stopping_step(each.steps, c, sure) for each in whole for c in range(4))
    assert 1 <= earliest < last  # else nothing is tested
    for all_steps, some_steps in zip(whole, stopped, strict=True):
        numbers = [stopping_step(all_steps.steps, candidate, sure) for candidate in range(4)]
        expected = [all_steps.steps[number].clean[c] for c, number in enumerate(numbers)]
        assert some_steps.tokens == expected
        assert len(some_steps.steps) == last + 1
        for c, number in enumerate(numbers):  # frozen from there on, also in the trace
            assert all(step.clean[c] == expected[c] for step in some_steps.steps[number:])


def test_a_rule_that_is_never_met_changes_nothing(model: LengthPredictingModel) -> None:
    assert decode(model, 0.999) == decode(model, 1.0)


def test_a_text_does_not_depend_on_its_batch(model: LengthPredictingModel) -> None:
    together = decode(model, SURE)
    for index, row in enumerate(ROWS):
        (alone,) = decode(model, SURE, [row], (index,))
        assert alone.tokens == together[index].tokens
        assert alone.scores == pytest.approx(together[index].scores, abs=1e-4)


@pytest.mark.parametrize("beams", [(2, 2), (2, 3)])
def test_requests_that_share_a_batch_stop_as_alone(
    beams: tuple[int, int], model: LengthPredictingModel
) -> None:
    """Also where they have unequally many candidates, so that each row has an encoding of its own."""
    parts, alone = [], []
    for index, noise_beam in enumerate(beams):
        config = LengthPredictingGenerationConfig(
            steps=25, stop_early=0, length_beam=2, noise_beam=noise_beam, stop_when_sure=SURE
        )
        decoder, batch = model.build_decoder(config), SourceBatch([ROWS[index]], [index])
        alone += decoder.decode(batch)
        parts.append(BatchPart(decoder, batch))
    together: Any = parts
    for stage in join_stages():
        together = stage(together)
    assert [each.tokens for each in together] == [each.tokens for each in alone]


@pytest.fixture
def rows(model: LengthPredictingModel) -> list[int]:
    """How many candidates the network computes, pass by pass."""
    counts: list[int] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: counts.append(len(inputs[0])))
    return counts


def test_the_network_computes_only_candidates_that_are_not_finished(
    model: LengthPredictingModel, rows: list[int]
) -> None:
    whole = decode(model, 1.0)
    rows.clear()
    decode(model, SURE)
    stops = [stopping_step(each.steps, candidate, SURE) for each in whole for candidate in range(4)]
    assert rows == [sum(number <= stop for stop in stops) for number in range(max(stops) + 1)]
    assert len(set(rows)) > 2  # else nothing is tested


def test_easy_texts_take_fewer_steps_alone(model: LengthPredictingModel) -> None:
    alone = [len(decode(model, SURE, [row], (i,))[0].steps) for i, row in enumerate(ROWS)]
    assert min(alone) < max(alone) == len(decode(model, SURE)[0].steps)


def test_decoding_token_by_token_stops_each_round(model: LengthPredictingModel) -> None:
    whole = decode(model, 1.0, strategy="token-by-token", length=3)
    stopped = decode(model, SURE, strategy="token-by-token", length=3)
    assert all(len(row) == 3 for each in stopped for row in each.tokens)
    assert len(stopped[0].steps) < len(whole[0].steps) == 3 * 25


def test_candidates_leave_the_network_in_each_round_of_token_by_token(
    model: LengthPredictingModel, rows: list[int]
) -> None:
    decode(model, 0.55, strategy="token-by-token", length=6)
    assert min(rows) < rows[0] == max(rows)


def test_replayed_graphs_stop_at_the_same_texts(
    model: LengthPredictingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = decode(model, SURE, length=4)
    monkeypatch.setattr(cuda_graphs, "CudaGraph", Replayed)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    executor = CudaGraphExecutor()
    model.use_executor(executor)
    replayed = decode(model, SURE, length=4)
    assert [each.tokens for each in replayed] == [each.tokens for each in eager]
    assert len(replayed[0].steps) == len(eager[0].steps) < 25


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_the_probability_is_between_0_and_1(value: float) -> None:
    with pytest.raises(Problem, match="stop_when_sure"):
        LengthPredictingGenerationConfig(stop_when_sure=value)
