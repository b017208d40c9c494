"""One pass from pairs to terms: the noise is the schedule's, everything learns, the batch can be cut."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from noise2text.core.random import key
from noise2text.data.ragged import Rows
from noise2text.models import LengthDiffusion
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import Level
from noise2text.training.loop import evaluate_loss, train_steps
from noise2text.training.lr_schedules import constant
from noise2text.training.objective import DiffusionObjective
from noise2text.training.step_runner import Plain

from ..conftest import SMALL, Make

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]]


def objective_of(system: LengthDiffusion, **changes: Any) -> DiffusionObjective:
    recipe = find_recipe("difformer")
    settings = dataclasses.replace(recipe.settings("tiny"), **(SMALL | {"factor": 2.0} | changes))
    objective: DiffusionObjective = recipe.objective(settings, system)
    return objective


def test_the_denoiser_sees_signal_plus_rescaled_noise(small: Make) -> None:
    system = small()
    objective = objective_of(system, factor=3.0)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = objective.draw(canvas, key(0, torch.arange(3)), key(0))
    seen: list[torch.Tensor] = []
    system.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    objective(canvas, draws)
    level: Level = system.schedule(draws.t, 5)
    expected = level.alpha * system.denoiser.space.embed(canvas.tokens) + 3 * level.sigma * draws.noise
    assert torch.allclose(seen[0].double(), expected, atol=1e-5)


def test_what_is_trained_has_gradients_even_if_it_is_watched_first(small: Make) -> None:
    system = small()
    objective = objective_of(system)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = objective.draw(canvas, key(0, torch.arange(3)), key(0))
    before = objective(canvas, draws)
    objective.terms = dict(reversed(objective.terms.items()))  # now `nll` looks at the surprises first
    after = objective(canvas, draws)
    assert list(after) == list(reversed(before))
    assert all(after[name].value.requires_grad for name in objective.weights)
    assert all(torch.equal(before[name].value, tally.value) for name, tally in after.items())


@pytest.mark.parametrize("guessed", [False, True])
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_every_parameter_gets_a_gradient(small: Make, guessed: bool, precision: torch.dtype | None) -> None:
    system = small()
    objective = objective_of(system)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = dataclasses.replace(objective.draw(canvas, key(0, torch.arange(3)), key(0)), guessed=guessed)
    with torch.autocast("cpu", precision, cache_enabled=False) if precision else nullcontext():
        tallies = objective(canvas, draws)
    objective.loss({name: tally.total() for name, tally in tallies.items()}).backward()
    for name, parameter in system.named_parameters():
        assert parameter.grad is not None, name
        # A guess of zeros leaves its half of the projection without signal; nothing else may stay at zero.
        assert parameter.grad.abs().sum() > 0, name


def test_the_guess_is_made_without_gradient_and_changes_the_pass(
    small: Make,
) -> None:
    system = small()
    objective = objective_of(system)
    canvas = system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))
    draws = objective.draw(canvas, key(0, torch.arange(3)), key(0))
    guesses: list[Any] = []
    system.denoiser.register_forward_pre_hook(lambda module, inputs: guesses.append(inputs[4]))
    plain = objective(canvas, dataclasses.replace(draws, guessed=False))["vlb"].total()
    guessed = objective(canvas, dataclasses.replace(draws, guessed=True))["vlb"].total()
    assert guesses[0] is None
    assert guesses[1] is None
    assert not guesses[2].requires_grad
    assert plain != guessed


def test_draws_depend_on_keys_alone(small: Make) -> None:
    objective = objective_of(small())
    layout = small().layout
    keys = key(0, torch.arange(3))
    whole = objective.draw(layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS)), keys, key(0))
    part = objective.draw(
        layout.canvas(Rows.of(SOURCES[1:2]), Rows.of(TARGETS[1:2]), shape=(9, 9)), keys[1:2], key(0)
    )
    assert torch.equal(part.t, whole.t[1:2])
    assert torch.equal(part.noise[:, :5], whole.noise[1:2])


def test_times_cover_the_grid_and_the_coin_its_share(small: Make) -> None:
    objective = objective_of(small(), self_conditioning=0.25, diffusion_steps=10)
    canvas = small().layout.canvas(Rows.of(SOURCES[:1] * 4000), Rows.of(TARGETS[:1] * 4000))
    t = objective.draw(canvas, key(0, torch.arange(4000)), key(0)).t
    assert sorted({round(float(x) * 10) for x in t}) == list(range(1, 11))
    counts = torch.bincount((t * 10).round().long())[1:]
    assert counts.min() > 330
    coins = [
        objective.draw(canvas_of_one(small), key(0, torch.arange(1)), key(0, i)).guessed for i in range(2000)
    ]
    assert abs(sum(coins) / 2000 - 0.25) < 0.04


def canvas_of_one(small: Make) -> Any:
    from noise2text.data.layouts.canvas import Split

    return Split(0).canvas(Rows.of(SOURCES[:1]), Rows.of(TARGETS[:1]))


@pytest.mark.parametrize("losses", ["vlb", "vlb+rounding", "vlb+anchor", "anchor", "vlb+anchor+rounding"])
def test_any_combination_of_losses_is_an_objective(small: Make, losses: str) -> None:
    system = small()
    objective = objective_of(system, losses=losses, length_factor=0.1)
    scores = evaluate_loss(objective, [system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))], seed=0)
    total = sum(scores[name] for name in losses.split("+")) + 0.1 * scores["length"]
    assert scores["loss"] == pytest.approx(total, rel=1e-5)
    assert "nll" in scores


def test_micro_batches_give_the_gradient_of_the_whole_batch(small: Make) -> None:
    """Counts are summed over the step before dividing, so unequal micro-batches weigh what they should."""

    def stepped(cuts: list[slice]) -> dict[str, torch.Tensor]:
        system = small(dropout=0.0)
        objective = objective_of(system, self_conditioning=0.0)
        canvases = [system.layout.canvas(Rows.of(SOURCES[cut]), Rows.of(TARGETS[cut])) for cut in cuts]
        optimiser = torch.optim.SGD(system.parameters(), lr=0.1)
        steps = train_steps(
            objective,
            optimiser,
            lambda step: canvases,
            first=1,
            last=1,
            peak=0.1,
            rate=constant(0, 1),
            clip=0,
            seed=0,
            run=Plain(nullcontext),
        )
        list(steps)
        return dict(system.named_parameters())

    whole, parts = stepped([slice(0, 3)]), stepped([slice(0, 1), slice(1, 3)])
    for name, value in whole.items():
        assert torch.allclose(value, parts[name], atol=1e-6), name


def test_validation_loss_is_the_same_each_time(small: Make) -> None:
    system = small(dropout=0.5)
    objective = objective_of(system)
    canvases = [system.layout.canvas(Rows.of(SOURCES), Rows.of(TARGETS))]
    assert evaluate_loss(objective, canvases, seed=0) == evaluate_loss(objective, canvases, seed=0)
    assert evaluate_loss(objective, canvases, seed=0) != evaluate_loss(objective, canvases, seed=1)
