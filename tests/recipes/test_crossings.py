"""Parts of one paper in the recipe of another: adaptive schedules, noise factors and the anchor loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.degeneration_score import find_noise_factor
from noise2text.diffusion.schedules import Rescaled, rescale_preserving
from noise2text.models import DiffusionModel
from noise2text.models.folder import load, save
from noise2text.models.registry import find_recipe
from noise2text.training.adaptive_objective import AdaptiveObjective
from noise2text.training.noise_factor_search import NoiseFactorSearch
from noise2text.training.objective import DiffusionObjective, Objective

from ..conftest import shrunk

SOURCES, TARGETS = [[8, 9, 10], [11]], [[20, 21, 22], [23, 24]]
REFIT = {"refit_every": 10, "refit_start": 10, "refit_bin_size": 1000, "refit_min_count": 1}
CROSSED = ["difformer", "seqdiffuseq"]


def made(recipe: str, tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, Objective]:
    config = shrunk(find_recipe(recipe).preset("tiny"), **changes)
    torch.manual_seed(0)
    model = find_recipe(recipe).build(config, tokenizer)
    return model, find_recipe(recipe).objective(config, model)


def adaptive(model: DiffusionModel) -> AdaptiveSchedule:
    assert isinstance(model.schedule, AdaptiveSchedule)
    return model.schedule


def canvas_of(model: DiffusionModel) -> Any:
    return model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))


@pytest.mark.parametrize("recipe", CROSSED)
def test_an_adaptive_schedule_with_a_factor_trains_with_more_noise_and_samples_without(
    recipe: str, tokenizer: Tokenizer
) -> None:
    model, objective = made(recipe, tokenizer, **REFIT, noise_factor=3.0, anchor_weight=1.0)
    assert isinstance(objective, AdaptiveObjective)
    assert objective.weights["anchor"] == 1.0
    t, length = torch.tensor([0.3, 0.7]), canvas_of(model).tokens.shape[1]
    plain, trained = adaptive(model)(t, length), objective.schedule(t, length)
    assert torch.equal(trained.alpha, plain.alpha)
    assert torch.allclose(trained.sigma, 3 * plain.sigma)


@pytest.mark.parametrize("recipe", CROSSED)
def test_a_refit_makes_the_losses_of_the_amplified_noise_linear(recipe: str, tokenizer: Tokenizer) -> None:
    """Low losses in the first half of the time and high ones in the second move the schedule."""
    model, objective = made(recipe, tokenizer, **REFIT, noise_factor=3.0)
    assert isinstance(objective, AdaptiveObjective)
    before = adaptive(model).alpha_bars.clone()
    for time, loss in ((0.25, 0.1), (0.75, 0.9)):
        positions = torch.ones(1, before.shape[1])
        objective.observe(torch.tensor([time]), loss * positions, positions.bool())
    objective.adapt(10)
    assert torch.equal(adaptive(model).alpha_bars, before)  # one step late
    objective.adapt(11)
    after = adaptive(model).alpha_bars
    assert not torch.allclose(after, before)
    assert (after.diff(dim=0) < 0).all()
    assert torch.equal(after[[1, -1]], before[[1, -1]])


@pytest.mark.parametrize("recipe", CROSSED)
def test_a_step_observes_its_losses_and_the_schedule_is_part_of_the_model(
    recipe: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model, objective = made(recipe, tokenizer, **REFIT, noise_factor=2.0, max_target=8)
    canvas = canvas_of(model)
    draws = objective.draw(canvas, make_key(0, torch.arange(2)), make_key(0))
    objective.observe(*objective.collect_observations(draws, objective(canvas, draws)))
    has_end = recipe == "seqdiffuseq"
    assert adaptive(model).counts.sum() == sum(len(target) + has_end for target in TARGETS)
    adaptive(model).alpha_bars[5:50] *= 0.9
    config = shrunk(find_recipe(recipe).preset("tiny"), **REFIT, noise_factor=2.0, max_target=8)
    save(tmp_path / "model", model, recipe=recipe, config=config)
    loaded = load(tmp_path / "model", device="cpu", precision="float32")
    assert isinstance(loaded, DiffusionModel)
    assert torch.equal(adaptive(loaded).alpha_bars, adaptive(model).alpha_bars)
    assert loaded.generate(["abc"], steps=3).texts == model.eval().generate(["abc"], steps=3).texts


# The noise factor follows the embeddings


@pytest.mark.parametrize("changes", [{}, {"variance_preserving": True}])
def test_the_factor_is_the_one_of_the_learned_embeddings(
    changes: dict[str, Any], tokenizer: Tokenizer
) -> None:
    model, objective = made("difformer", tokenizer, noise_factor=2.0, noise_factor_every=5, **changes)
    assert isinstance(objective, NoiseFactorSearch)
    embedding, factors = model.denoiser.embedding, []
    for scale in (1.0, 3.0):
        with torch.no_grad():
            embedding.weight.mul_(scale)
        factors.append(float(objective.rescaled.factor))
        objective.adapt(5)
        assert float(objective.rescaled.factor) == factors[-1]  # not before the next step
        objective.adapt(6)
        expected = find_noise_factor(
            model.schedule,
            embedding.vectors,
            target=0.15,
            rescale=rescale_preserving if changes else Rescaled,
        )
        assert float(objective.rescaled.factor) == expected.factor
    assert factors[0] == 2.0
    assert float(objective.rescaled.factor) > factors[1]  # embeddings further apart need more noise
    if not changes:  # three times as much; the grid has steps of 0.5
        assert float(objective.rescaled.factor) == pytest.approx(3 * factors[1], abs=1.5)


@pytest.mark.parametrize("recipe", [*CROSSED, "diffuseq", "diffusion-lm"])
def test_the_factor_changes_the_noise_of_training_and_is_saved(recipe: str, tokenizer: Tokenizer) -> None:
    model, objective = made(recipe, tokenizer, noise_factor=2.0, noise_factor_every=5)
    assert isinstance(objective, NoiseFactorSearch)
    assert "objective.schedule.factor" in dict(objective.named_buffers())  # which checkpoints hold
    t = torch.tensor([0.5])
    objective.rescaled.factor.fill_(4.5)
    inner = objective.objective
    assert isinstance(inner, DiffusionObjective)
    assert torch.allclose(inner.schedule(t, 3).sigma, 4.5 * model.schedule(t, 3).sigma)


def test_an_adaptive_schedule_covers_the_begin_and_the_end_of_the_released_canvas(
    tokenizer: Tokenizer,
) -> None:
    model, _ = made("difformer", tokenizer, **REFIT, noise_factor=2.0, network="released")
    longest = RaggedRows.from_lists([[20] * model.max_target])
    length = model.layout.make_canvas(longest, longest).tokens.shape[1]
    assert adaptive(model)(torch.tensor([0.5]), length).alpha.shape[1] == length == model.max_target + 2


@pytest.mark.parametrize("recipe", CROSSED)
def test_without_these_settings_nothing_is_wrapped(recipe: str, tokenizer: Tokenizer) -> None:
    model, objective = made(recipe, tokenizer, refit_every=0, noise_factor=1.0)
    assert isinstance(objective, DiffusionObjective)
    assert all("factor" not in name for name in model.state_dict())
    t = torch.tensor([0.5])
    assert torch.equal(objective.schedule(t, 3).sigma, model.schedule(t, 3).sigma)


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ("difformer", {"refit_every": 10, "boundary_confidence": 0.5}, "noise that stays the same"),
        ("difformer", {"refit_every": 10, "average_best": 5}, "average_best must be 1"),
        ("difformer", {"noise_factor_every": 10, "average_best": 5}, "average_best must be 1"),
        *(
            (name, {"max_dgs": 2.0, "noise_factor_every": 10}, "max_dgs must be above 0 and below 1")
            for name in ("difformer", "seqdiffuseq", "diffuseq", "diffusion-lm", "word-by-word")
        ),
        ("difformer", {"network": "released", "max_source": 300}, "max_source to at most"),
        ("difformer", {"refit_every": 10, "refit_bin_size": 7}, "multiple of refit_bin_size"),
        ("seqdiffuseq", {"noise_factor": 0.0}, "noise_factor must be above 0"),
        ("diffuseq-epsilon", {"noise_factor_every": 10}, "networks that predict z0"),
        ("diffuseq-position-sigmoid", {"noise_factor_every": 10}, "same at all positions"),
        ("flow", {"noise_factor_every": 10}, "flow has one path for all times"),
    ],
)
def test_what_does_not_go_together_is_refused(
    recipe: str, changes: dict[str, Any], said: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(Problem, match=said):
        made(recipe, tokenizer, **changes)
