"""One pass from pairs to terms: the noise follows the schedule, every weight learns, batches can be split."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from noise2text.core.config import apply_overrides
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.models import LengthPredictingModel
from noise2text.models.registry import find_recipe
from noise2text.nn.denoiser import NoiseLevel
from noise2text.training.loop import StepSettings, evaluate_loss, train_steps
from noise2text.training.lr_schedules import constant
from noise2text.training.objective import DiffusionObjective

from ..conftest import SMALL, Make

SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]]


def objective_of(model: LengthPredictingModel, **changes: Any) -> DiffusionObjective:
    recipe = find_recipe("difformer")
    config = apply_overrides(recipe.preset("tiny"), SMALL | {"noise_factor": 2.0} | changes, origin="a test")
    objective: DiffusionObjective = recipe.objective(config, model)
    return objective


def test_the_denoiser_sees_signal_plus_rescaled_noise(small: Make) -> None:
    model = small(noise_factor=3.0)
    objective = objective_of(model)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    seen: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    objective(canvas, draws)
    level: NoiseLevel = model.schedule(draws.t, 5)
    expected = level.alpha * model.denoiser.embedding.embed(canvas.tokens) + 3 * level.sigma * draws.noise
    assert torch.allclose(seen[0].double(), expected, atol=1e-5)


def test_trained_terms_have_gradients_even_after_logged_ones(small: Make) -> None:
    model = small()
    objective = objective_of(model)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    before = objective(canvas, draws)
    objective.terms = dict(reversed(objective.terms.items()))  # now `nll` comes first
    after = objective(canvas, draws)
    assert list(after) == list(reversed(before))
    assert all(after[name].values.requires_grad for name in objective.weights)
    assert all(torch.equal(before[name].values, token_loss.values) for name, token_loss in after.items())


@pytest.mark.parametrize("self_conditioned", [False, True])
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_every_parameter_gets_a_gradient(
    small: Make, self_conditioned: bool, precision: torch.dtype | None
) -> None:
    model = small()
    objective = objective_of(model)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = dataclasses.replace(
        objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0)), self_conditioned=self_conditioned
    )
    with torch.autocast("cpu", precision, cache_enabled=False) if precision else nullcontext():
        token_losses = objective(canvas, draws)
    objective.loss({name: token_loss.total() for name, token_loss in token_losses.items()}).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # A guess of zeros leaves its half of the projection without signal; nothing else may stay at zero.
        assert parameter.grad.abs().sum() > 0, name


def test_self_conditioning_has_no_gradient_and_changes_the_pass(
    small: Make,
) -> None:
    model = small()
    objective = objective_of(model)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    self_conditions: list[Any] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: self_conditions.append(inputs[4]))
    plain = objective(canvas, dataclasses.replace(draws, self_conditioned=False))["vlb"].total()
    self_conditioned = objective(canvas, dataclasses.replace(draws, self_conditioned=True))["vlb"].total()
    assert self_conditions[0] is None
    assert self_conditions[1] is None
    assert not self_conditions[2].requires_grad
    assert plain != self_conditioned


def test_draws_depend_on_keys_alone(small: Make) -> None:
    objective = objective_of(small())
    layout = small().layout
    keys = make_key(0, torch.arange(3))
    whole = objective.draw(
        layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS)), keys, make_key(0)
    )
    part = objective.draw(
        layout.make_canvas(
            RaggedRows.from_lists(SOURCES[1:2]), RaggedRows.from_lists(TARGETS[1:2]), shape=(9, 9)
        ),
        keys[1:2],
        make_key(0),
    )
    assert torch.equal(part.t, whole.t[1:2])
    assert torch.equal(part.noise[:, :5], whole.noise[1:2])


def test_times_cover_the_grid_and_self_conditioning_its_share(small: Make) -> None:
    objective = objective_of(small(), self_conditioning=0.25, num_timesteps=10)
    canvas = small().layout.make_canvas(
        RaggedRows.from_lists(SOURCES[:1] * 4000), RaggedRows.from_lists(TARGETS[:1] * 4000)
    )
    t = objective.draw(canvas, make_key(0, torch.arange(4000)), make_key(0)).t
    assert sorted({round(float(x) * 10) for x in t}) == list(range(1, 11))
    counts = torch.bincount((t * 10).round().long())[1:]
    assert counts.min() > 330
    flags = [
        objective.draw(canvas_of_one(small), make_key(0, torch.arange(1)), make_key(0, i)).self_conditioned
        for i in range(2000)
    ]
    assert abs(sum(flags) / 2000 - 0.25) < 0.04


def canvas_of_one(small: Make) -> Any:
    from noise2text.data.layouts.split import SplitLayout

    return SplitLayout(0).make_canvas(RaggedRows.from_lists(SOURCES[:1]), RaggedRows.from_lists(TARGETS[:1]))


@pytest.mark.parametrize("losses", ["vlb", "vlb+rounding", "vlb+anchor", "anchor", "vlb+anchor+rounding"])
def test_any_combination_of_losses_is_an_objective(small: Make, losses: str) -> None:
    model = small()
    weights = {f"{name}_weight": float(name in losses.split("+")) for name in ("vlb", "anchor", "rounding")}
    objective = objective_of(model, **weights, length_loss_weight=0.1)
    scores = evaluate_loss(
        objective,
        [model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))],
        seed=0,
    )
    total = sum(scores[name] for name in losses.split("+")) + 0.1 * scores["length"]
    assert scores["loss"] == pytest.approx(total, rel=1e-5)
    assert "nll" in scores


def test_micro_batches_give_the_gradient_of_the_whole_batch(small: Make) -> None:
    """Counts are summed over the step before dividing, so unequal micro-batches weigh what they should."""

    def stepped(cuts: list[slice]) -> dict[str, torch.Tensor]:
        model = small(dropout=0.0)
        objective = objective_of(model, self_conditioning=0.0)
        canvases = [
            model.layout.make_canvas(RaggedRows.from_lists(SOURCES[cut]), RaggedRows.from_lists(TARGETS[cut]))
            for cut in cuts
        ]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps = train_steps(
            objective,
            optimizer,
            lambda step: canvases,
            first=1,
            last=1,
            settings=StepSettings(peak_lr=0.1, lr_schedule=constant(0, 1), clip_norm=0, seed=0),
        )
        list(steps)
        return dict(model.named_parameters())

    whole, parts = stepped([slice(0, 3)]), stepped([slice(0, 1), slice(1, 3)])
    for name, value in whole.items():
        assert torch.allclose(value, parts[name], atol=1e-6), name


def test_validation_loss_is_the_same_each_time(small: Make) -> None:
    model = small(dropout=0.5)
    objective = objective_of(model)
    canvases = [model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))]
    assert evaluate_loss(objective, canvases, seed=0) == evaluate_loss(objective, canvases, seed=0)
    assert evaluate_loss(objective, canvases, seed=0) != evaluate_loss(objective, canvases, seed=1)


def self_conditions_of(
    objective: DiffusionObjective, model: LengthPredictingModel
) -> tuple[list[torch.Tensor], Any]:
    """What the denoiser gets as its own estimate in a self-conditioned step, and the canvas."""
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    canvas = dataclasses.replace(canvas, given=torch.arange(5).expand(3, 5) == 1)
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), key_of_step(objective))
    seen: list[Any] = []
    hook = model.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[4]))
    objective(canvas, draws)
    hook.remove()
    return seen, canvas


def key_of_step(objective: DiffusionObjective) -> torch.Tensor:
    """The key of a step that is self-conditioned."""
    return next(key for key in map(make_key, range(100)) if objective.step_flags(key))


def test_the_estimate_of_self_conditioning_gets_noise_of_the_given_deviation(small: Make) -> None:
    model = small(embedding_dim=64)
    changes: dict[str, Any] = {"embedding_dim": 64}
    (_, clean), _ = self_conditions_of(objective_of(model, **changes), model)
    (_, perturbed), canvas = self_conditions_of(
        objective_of(model, self_condition_noise=0.4, **changes), model
    )
    noise = (perturbed - clean)[~canvas.given]
    assert noise.std().item() == pytest.approx(0.4, rel=0.1)
    assert abs(noise.mean().item()) < 0.05
    assert torch.equal(perturbed[canvas.given], clean[canvas.given])  # given positions stay given
    again, _ = self_conditions_of(objective_of(model, self_condition_noise=0.4, **changes), model)
    assert torch.equal(again[1], perturbed)  # a function of the key


def test_noise_on_the_estimate_changes_no_other_draw(small: Make) -> None:
    model = small()
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    keys = make_key(0, torch.arange(3))
    plain, perturbed = (objective_of(model, self_condition_noise=value) for value in (0.0, 0.4))
    key = key_of_step(plain)
    one, other = plain.draw(canvas, keys, key), perturbed.draw(canvas, keys, key)
    assert torch.equal(one.noise, other.noise)
    assert torch.equal(one.t, other.t)
    assert not one.self_condition_noise.any()
    assert not torch.equal(other.self_condition_noise, other.noise)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95, 1.0])
def test_the_share_of_self_conditioned_steps_is_the_setting(small: Make, share: float) -> None:
    objective = objective_of(small(), self_conditioning=share)
    flags = [objective.step_flags(make_key(3, step)) for step in range(2000)]
    assert sum(flags) / 2000 == pytest.approx(share, abs=0.02)
