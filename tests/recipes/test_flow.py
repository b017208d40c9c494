"""Rectified flow: straight paths, Euler's steps, and a noise factor for its own schedule."""

from __future__ import annotations

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.degeneration_score import find_noise_factor, random_embeddings
from noise2text.diffusion.solvers import Ddim, step_coefficients
from noise2text.models.registry import find_recipe
from noise2text.recipes.flow import RectifiedFlow

RECIPE = find_recipe("flow")


def test_a_deterministic_step_is_eulers_on_the_velocity() -> None:
    """z_s = z_t + (s − t)·v, with v = ε̂ − ẑ₀ and ε̂ = (z_t − α·ẑ₀) / σ."""
    times = torch.tensor([0.9, 0.4], dtype=torch.float64)
    schedule = RectifiedFlow(1000)
    now, then = (schedule(times[i : i + 1], 1) for i in (0, 1))
    z_weight, z0_weight, noise_weight = step_coefficients(now, then, Ddim(0.0))
    z, z0 = torch.randn(1, 5, 3, dtype=torch.float64), torch.randn(1, 5, 3, dtype=torch.float64)
    velocity = (z - now.alpha * z0) / now.sigma - z0
    torch.testing.assert_close(z_weight * z + z0_weight * z0, z + (times[1] - times[0]) * velocity)
    assert noise_weight.item() == 0


def test_the_path_is_a_straight_line_and_the_velocity_its_slope() -> None:
    z0, noise = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    early, late = (
        RectifiedFlow(100, noise_factor=3.0)(torch.full((2,), t), 4).add_noise(z0, noise)
        for t in (0.25, 0.75)
    )
    torch.testing.assert_close((late - early) / 0.5, 3 * noise - z0)


def test_generation_follows_the_path_of_training(tokenizer: Tokenizer) -> None:
    config = RECIPE.preset("tiny").replace(noise_factor=3.0)
    model = RECIPE.build(config, tokenizer)
    training = RECIPE.objective(config, model).schedule
    times = torch.tensor([0.2, 0.7])
    sampling = model.build_sampling_schedule(model.generation_config)
    assert torch.equal(training(times, 1).sigma, sampling(times, 1).sigma)


def test_the_noise_factor_is_that_of_its_own_schedule(tokenizer: Tokenizer) -> None:
    config = RECIPE.preset("tiny").replace(embedding_dim=16)
    factor = RECIPE.resolve(config, tokenizer).diffusion.noise_factor
    embeddings = random_embeddings(len(tokenizer), 16)
    assert factor == find_noise_factor(RectifiedFlow(), embeddings, target=config.diffusion.max_dgs).factor
    assert factor != find_recipe("difformer").resolve(config, tokenizer).diffusion.noise_factor


def test_no_preset_has_difformers_factor() -> None:
    assert {preset.diffusion.noise_factor for preset in RECIPE.presets.values()} == {None}


@pytest.mark.parametrize(
    "changes",
    [{"schedule": "cosine"}, {"variance_preserving": True}, {"refit_every": 100}, {"rounding_weight": 1.0}],
)
def test_settings_of_difformer_that_it_does_not_have_are_refused(
    changes: dict[str, object], tokenizer: Tokenizer
) -> None:
    with pytest.raises(Problem, match=f"flow has .*: set {next(iter(changes))} to"):
        RECIPE.build(RECIPE.preset("tiny").replace(changes), tokenizer)
