"""Every recipe keeps the laws that `noise2text check-recipe` checks, and the check finds what breaks them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from noise2text.commands.check_recipe import (
    LAWS,
    DoesNotApply,
    Law,
    Workspace,
    a_resumed_run_equals_an_uninterrupted_one,
    check_recipe,
)
from noise2text.core.config import has_setting
from noise2text.models.registry import Recipe, find_recipe, list_recipes

from ..conftest import SMALL


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workspace]:
    return {}


FITTED_AT_ONCE = ("copy", "nearest")  # so that there is nothing to resume


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_keeps_every_law(
    name: str, law: Law, workspaces: dict[str, Workspace], tmp_path_factory: pytest.TempPathFactory
) -> None:
    recipe = find_recipe(name)
    if name not in workspaces:
        config = recipe.preset("tiny")
        small = {key: value for key, value in SMALL.items() if has_setting(config, key)}
        if has_setting(config, "noise_factor"):
            small["noise_factor"] = 1.0 if "mean" in name else 2.0
        workspaces[name] = Workspace.create(tmp_path_factory.mktemp(name), recipe, small)
    if name in FITTED_AT_ONCE and law is a_resumed_run_equals_an_uninterrupted_one:
        with pytest.raises(DoesNotApply, match="nothing to resume"):
            law(recipe, workspaces[name])
    else:
        law(recipe, workspaces[name])


def test_a_law_that_does_not_apply_is_listed_with_the_reason(tmp_path: Path) -> None:
    exceptions = {result.law: result.exception for result in check_recipe(find_recipe("copy"), tmp_path)}
    (law,) = (law for law, exception in exceptions.items() if exception)
    assert law == "a resumed run equals an uninterrupted one"
    assert "nothing to resume" in exceptions[law]


def broken(**changes: Any) -> Recipe:
    """A recipe that is not registered but named like one: Difformer with something else in it."""
    return dataclasses.replace(find_recipe("difformer"), **changes)


def test_a_preset_that_builds_nothing_is_found(tmp_path: Path) -> None:
    def build(config: Any, tokenizer: Any) -> None:
        raise ValueError("there is nothing to build")

    recipe = broken(build=build)
    results = {result.law: result.problem for result in check_recipe(recipe, tmp_path)}
    assert "nothing to build" in results["presets build and survive yaml"]


def test_a_model_that_changes_while_it_generates_is_found(tmp_path: Path) -> None:
    from noise2text.commands.check_recipe import generating_leaves_the_model_as_it_was

    class Forgetful(Workspace):
        def trained(self, recipe: Recipe) -> Any:
            model = recipe.build(recipe.preset("tiny").replace(tokenizer="characters"), _tokenizer())
            generate = model.generate

            def forget(*texts: Any, **options: Any) -> Any:
                with torch.no_grad():
                    next(model.parameters()).zero_()
                return generate(*texts, **options)

            model.generate = forget
            return model

    with pytest.raises(AssertionError):
        generating_leaves_the_model_as_it_was(find_recipe("difformer"), Forgetful(tmp_path, {}))


def _tokenizer() -> Any:
    from noise2text.data.tokenizer import learn_characters

    return learn_characters(["abcdefghijklmnopqrstuvwxyz 0123456789,.-"])
