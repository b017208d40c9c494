"""Measured figures belong to presets that exist, and say how they were measured."""

from __future__ import annotations

import pytest

from noise2text.core.config import describe
from noise2text.models.registry import find_recipe, list_recipes
from noise2text.models.tiny_results import TinyResult, measuring_commands, tiny_results

OURS = [name for name in list_recipes() if tiny_results(name)]
DIFFUSION = [
    name
    for name, recipe in list_recipes().items()
    if any(setting.startswith("diffusion.") for setting, *_ in describe(recipe.preset()))
]


@pytest.mark.parametrize("name", OURS)
def test_a_figure_is_of_a_preset_and_in_range(name: str) -> None:
    results = tiny_results(name)
    assert "tiny" in results
    assert set(results) <= set(find_recipe(name).presets)
    for result in results.values():
        assert 0 <= result.exact_match <= 100
        assert result.core_seconds is not None or result.note or result.exact_match == 0


@pytest.mark.parametrize(
    "name",
    sorted(name for name, recipe in list_recipes().items() if "tiny-published" in recipe.presets),
)
def test_the_published_form_stays_beside_a_form_that_learns(name: str) -> None:
    results = tiny_results(name)
    assert results["tiny-published"].exact_match < results["tiny"].exact_match
    assert find_recipe(name).preset("tiny-published") != find_recipe(name).preset("tiny")


def test_every_diffusion_recipe_has_a_figure_and_learns_dates() -> None:
    ours = [name for name in DIFFUSION if find_recipe(name).build.__module__.startswith("noise2text.")]
    assert len(ours) >= 17
    assert [name for name in ours if name not in OURS] == []
    assert [name for name in ours if tiny_results(name)["tiny"].exact_match < 80] == []


def test_a_figure_is_one_line() -> None:
    assert TinyResult(99.44, 84).describe() == "99.4 % of the test dates are exact, 84 s of one core"
    assert TinyResult(0.0, note="on an H200").describe() == "0.0 % of the test dates are exact (on an H200)"


def test_the_commands_go_from_data_to_score() -> None:
    words = [command.split()[1] for command in measuring_commands()]
    assert words == ["synth", "train", "generate", "evaluate"]
