"""Times by importance, for any recipe: other times, the same expected loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.loss_aware_times import LossAwareTimes
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe
from noise2text.training.loop import StepSettings, train_steps

from ..conftest import shrunk

WITH_SOURCE_DROPOUT = ["difformer", "flow", "seqdiffuseq"]
OBSERVED = {
    "difformer": "vlb",
    "flow": "velocity",
    "seqdiffuseq": "difficulty",
    "ar-diffusion": "vlb",
    "diffusion-lm": "vlb",
}
SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28, 29]]
KEYS = make_key(0, torch.arange(3))
LOSS_AWARE = {"time_sampler": "loss-aware", "num_timesteps": 10}


def make(name: str, tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, Any, Canvas]:
    """A small model, its objective and the canvas of three pairs."""
    recipe = find_recipe(name)
    bins = {"refit_bin_size": 5} if name == "seqdiffuseq" and "num_timesteps" in changes else {}
    config = shrunk(recipe.preset("tiny"), dropout=0.0, **bins, **changes)
    torch.manual_seed(0)
    model = recipe.build(config, tokenizer)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    return model, recipe.objective(config, model), canvas


def teach(times: LossAwareTimes) -> None:
    """Ten losses of each time, which grow with it."""
    t = (torch.arange(times.num_timesteps) + 1) / times.num_timesteps
    for _ in range(10):
        times.observe(t, t**2 + 0.1)


@pytest.mark.parametrize("name", OBSERVED)
@torch.no_grad()
def test_the_expected_loss_is_that_of_uniform_times(name: str, tokenizer: Tokenizer) -> None:
    """The sum of p_t times the weighted loss at t, over all t, is the mean of the plain losses."""
    model, objective, canvas = make(name, tokenizer, **LOSS_AWARE)
    for parameter in model.denoiser.parameters():  # the loss of untrained weights hardly depends on the time
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    teach(objective.time_sampler)
    p = objective.time_sampler.probabilities()
    assert p.max() > 3 * p.min()
    drawn_t, weights = objective.time_sampler(p.cumsum(0) - p / 2)
    assert torch.allclose(drawn_t, (torch.arange(10).double() + 1) / 10)
    draws, counts = objective.draw(canvas, KEYS, make_key(0)), objective.counts(canvas)

    def loss(t: float, weight: float) -> float:
        at_t = dataclasses.replace(draws, t=torch.full((3,), t), weight=torch.full((3,), weight))
        return float(objective.loss(objective.means(objective(canvas, at_t), counts)))

    by_importance = sum(
        chance * loss(t, weight)
        for chance, t, weight in zip(p.tolist(), drawn_t.tolist(), weights.tolist(), strict=True)
    )
    uniform = sum(loss(t, 1.0) for t in drawn_t.tolist()) / 10
    unweighted = sum(chance * loss(t, 1.0) for chance, t in zip(p.tolist(), drawn_t.tolist(), strict=True))
    assert by_importance == pytest.approx(uniform, rel=1e-5)
    assert unweighted != pytest.approx(uniform, rel=1e-3)


@pytest.mark.parametrize(("name", "term"), OBSERVED.items())
@torch.no_grad()
def test_the_times_observe_the_unweighted_loss_of_each_row(
    name: str, term: str, tokenizer: Tokenizer
) -> None:
    _, objective, canvas = make(name, tokenizer, **LOSS_AWARE)
    draws = dataclasses.replace(
        objective.draw(canvas, KEYS, make_key(0)),
        t=torch.tensor([0.2, 0.5, 0.9]),
        weight=torch.tensor([0.5, 1.0, 4.0]),
    )
    objective.observe(*objective.collect_observations(draws, objective(canvas, draws)))
    plain = objective(canvas, dataclasses.replace(draws, weight=torch.ones(3)))[term]
    for row, place in enumerate([1, 4, 8]):
        expected = plain.values[row][plain.mask[row]].mean().item()
        assert objective.time_sampler.losses[place, 0].item() == pytest.approx(expected, rel=1e-5)
    assert objective.time_sampler.counts.tolist() == [0, 1, 0, 0, 1, 0, 0, 0, 1, 0]


@torch.no_grad()
def test_without_the_squared_error_the_times_observe_the_anchor_loss(tokenizer: Tokenizer) -> None:
    _, objective, canvas = make("difformer", tokenizer, vlb_weight=0.0, **LOSS_AWARE)
    draws = objective.draw(canvas, KEYS, make_key(0))
    token_losses = objective(canvas, draws)
    anchor = token_losses["anchor"]
    _, observed = objective.collect_observations(draws, token_losses)
    expected = [float(row[mask].mean()) for row, mask in zip(anchor.values, anchor.mask, strict=True)]
    assert observed.tolist() == pytest.approx(expected, rel=1e-5)


@torch.no_grad()
def test_the_adaptive_schedule_observes_losses_without_the_weight(tokenizer: Tokenizer) -> None:
    sums = []
    for weight in (1.0, 4.0):
        model, objective, canvas = make("seqdiffuseq", tokenizer, **LOSS_AWARE)
        draws = objective.draw(canvas, KEYS, make_key(0))
        draws = dataclasses.replace(draws, weight=torch.full((3,), weight))
        objective.observe(*objective.collect_observations(draws, objective(canvas, draws)))
        assert isinstance(model.schedule, AdaptiveSchedule)
        sums.append(model.schedule.loss_sums)
    assert sums[0].sum() > 0
    torch.testing.assert_close(sums[1], sums[0])


@pytest.mark.parametrize("name", WITH_SOURCE_DROPOUT)
def test_training_fills_the_times_also_where_sources_are_dropped(name: str, tokenizer: Tokenizer) -> None:
    model, objective, canvas = make(name, tokenizer, source_dropout=0.5, **LOSS_AWARE)
    steps = train_steps(
        objective,
        torch.optim.SGD(model.parameters(), lr=0.01),
        lambda step: [canvas],
        first=1,
        last=2,
        settings=StepSettings(peak_lr=0.01, lr_schedule=lambda step: 1.0, clip_norm=1.0, seed=0),
    )
    assert all(torch.isfinite(report.loss) for report in steps)
    assert objective.objective.time_sampler.counts.sum() == 2 * len(SOURCES)


@pytest.mark.parametrize("name", WITH_SOURCE_DROPOUT)
def test_times_are_uniform_unless_they_are_asked_for(name: str, tokenizer: Tokenizer) -> None:
    _, objective, canvas = make(name, tokenizer)
    assert isinstance(objective.time_sampler, UniformTimes)
    if name != "seqdiffuseq":  # its schedule observes the losses
        draws = objective.draw(canvas, KEYS, make_key(0))
        assert objective.collect_observations(draws, objective(canvas, draws)) == ()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("difformer", {"time_sampler": "importance"}, "time_sampler"),
        ("seqdiffuseq", {"time_sampler": "importance"}, "time_sampler"),
        ("difformer", {"time_sampler": "loss-aware", "student_steps": 2}, "set time_sampler to uniform"),
    ],
)
def test_what_is_no_time_sampler_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message):
        shrunk(find_recipe(name).preset("tiny"), **changes)
