"""Every recipe keeps the laws that `noise2text check-recipe` checks, and the check finds what breaks them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import noise2text
from noise2text.commands.check_recipe import LAWS, check_recipe, name_law
from noise2text.commands.diffusion_laws import DIFFUSION_LAWS
from noise2text.commands.recipe_laws import (
    DoesNotApply,
    Workspace,
    generating_leaves_the_model_as_it_was,
)
from noise2text.core.config import has_setting
from noise2text.data.layouts.base import Canvas
from noise2text.models.registry import Recipe, find_recipe, list_recipes
from noise2text.nn.denoiser import Constraint

from ..conftest import NO_DIFFUSION, SMALL

FITTED_AT_ONCE = ("copy", "nearest")
ALWAYS_FULL = (  # their canvases: the network sees, and learns, what fills up a canvas
    "diffuseq",
    "diffuseq-autoregressive",
    "diffuseq-decoupled",
    "diffuseq-epsilon",
    "diffuseq-guided",
    "diffuseq-kernel",
    "diffuseq-mean",
    "diffuseq-position-sigmoid",
    "diffuseq-score",
    "diffusion-lm",
)
LAWS_BY_NAME = {law.__name__: law for law in LAWS}
WITHOUT_STEPS = {  # the laws that apply to a recipe without training steps, too
    "presets_build_and_survive_yaml",
    "training_is_deterministic",
    "texts_depend_on_the_seed_alone",
    "padding_changes_no_candidate",
    "a_saved_model_generates_the_same",
    "generating_leaves_the_model_as_it_was",
}
TRAINED = WITHOUT_STEPS - {"presets_build_and_survive_yaml"} | {"a_resumed_run_equals_an_uninterrupted_one"}


def find_exception(recipe: str, law: str) -> str | None:
    """Why the law does not apply to the recipe, as a part of the sentence; None if it does."""
    if recipe in FITTED_AT_ONCE and law not in WITHOUT_STEPS:
        return "it is fitted in one go"
    if recipe in NO_DIFFUSION and LAWS_BY_NAME[law] in DIFFUSION_LAWS:
        return "it is no diffusion model"
    if recipe in ALWAYS_FULL and law == "padding_changes_no_term_of_the_loss":
        return "its canvas has no padding"
    return None


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Workspace]:
    """A function that makes the workspace of a recipe, once."""
    made: dict[str, Workspace] = {}

    def find(name: str) -> Workspace:
        if name not in made:
            recipe = find_recipe(name)
            config = recipe.preset("tiny")
            small = {key: value for key, value in SMALL.items() if has_setting(config, key)}
            if has_setting(config, "noise_factor"):
                small["noise_factor"] = 1.0 if "mean" in name else 2.0
            made[name] = Workspace.create(tmp_path_factory.mktemp(name), recipe, small)
        return made[name]

    return find


@pytest.mark.parametrize(
    "law", [pytest.param(name, marks=pytest.mark.long) if name in TRAINED else name for name in LAWS_BY_NAME]
)
@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_keeps_every_law_or_is_listed_with_the_reason(
    name: str, law: str, workspaces: Callable[[str], Workspace]
) -> None:
    exception = find_exception(name, law)
    with nullcontext() if exception is None else pytest.raises(DoesNotApply, match=exception):
        LAWS_BY_NAME[law](find_recipe(name), workspaces(name))


def test_the_guide_lists_every_law_with_what_it_says() -> None:
    page = (Path(noise2text.__file__).parents[2] / "docs" / "guides" / "write_a_recipe.md").read_text()
    listed = [line for line in page.partition("| law |")[2].splitlines() if line.startswith("| ")]
    assert listed == [f"| {name_law(law)} | {(law.__doc__ or '').strip()} |" for law in LAWS]


@pytest.mark.long
def test_a_law_that_does_not_apply_is_listed_with_the_reason(tmp_path: Path) -> None:
    results = {result.law: result for result in check_recipe(find_recipe("copy"), tmp_path)}
    assert list(results) == list(map(name_law, LAWS))
    assert not any(result.problem for result in results.values())
    for name in LAWS_BY_NAME:
        found = results[name.replace("_", " ")].exception
        assert bool(found) == (name not in WITHOUT_STEPS)
        assert (find_exception("copy", name) or "") in found


def broken(**changes: Any) -> Recipe:
    """A recipe that is not registered but named like one: Difformer with something else in it."""
    return dataclasses.replace(find_recipe("difformer"), **changes)


def with_model(change: Callable[[Any], None]) -> Recipe:
    """Difformer, whose untrained model is changed."""

    def build(config: Any, tokenizer: Any) -> Any:
        model = find_recipe("difformer").build(config, tokenizer)
        change(model)
        return model

    return broken(build=build)


def build_nothing(config: Any, tokenizer: Any) -> None:
    raise ValueError("there is nothing to build")


def divide_by_warmup(config: Any, tokenizer: Any) -> Any:
    assert 1 // config.optim.warmup >= 0
    return find_recipe("difformer").build(config, tokenizer)


def noise_given_tokens(model: Any) -> None:
    """Its canvas gives no token, whatever the layout says."""
    constrain = model.denoiser.constrain

    def forget(canvas: Canvas) -> Constraint:
        return dataclasses.replace(constrain(canvas), given=torch.zeros_like(canvas.given))

    model.denoiser.constrain = forget


def read_padding(model: Any) -> None:
    """Its network sees the padding of the target."""
    forward = model.denoiser.forward

    def see(z: Any, level: Any, encoded: Any, constraint: Constraint, self_condition: Any) -> Any:
        visible = dataclasses.replace(constraint, padding=torch.zeros_like(constraint.padding))
        return forward(z, level, encoded, visible, self_condition)

    model.denoiser.forward = see


def ignore_the_noise_factor(model: Any) -> None:
    model.build_sampling_schedule = lambda config: model.schedule


def have_an_idle_parameter(model: Any) -> None:
    model.idle = torch.nn.Parameter(torch.zeros(1))


def keep_dropout(model: Any) -> None:
    """It drops numbers also when it is evaluated."""
    model.denoiser.register_forward_pre_hook(
        lambda module, inputs: (torch.nn.functional.dropout(inputs[0], 0.5, training=True), *inputs[1:])
    )


class Forgetful(Workspace):
    """A workspace whose trained model loses a weight while it generates."""

    def trained_model(self, recipe: Recipe) -> Any:
        model: Any = self.build(recipe)[0]

        def forget(module: Any, inputs: Any) -> None:
            with torch.no_grad():
                next(model.parameters()).zero_()

        model.denoiser.register_forward_pre_hook(forget)
        return model


@pytest.mark.parametrize(
    ("law", "recipe", "message"),
    [
        ("presets_build_and_survive_yaml", broken(build=build_nothing), "nothing to build"),
        (
            "a_number_out_of_range_is_refused_by_the_config",
            broken(build=divide_by_warmup),
            "optim.warmup=0 is not refused, and then fails: integer division",
        ),
        ("every_parameter_learns", with_model(have_an_idle_parameter), "the parameter idle learns nothing"),
        ("padding_changes_no_term_of_the_loss", with_model(read_padding), "depends on the padding"),
        ("generation_is_free_of_dropout", with_model(keep_dropout), "dropout of training"),
        (
            "what_is_given_is_not_noised_in_training",
            with_model(noise_given_tokens),
            "a given token is noised",
        ),
        ("what_is_given_stays_as_it_is_in_sampling", with_model(noise_given_tokens), "changes z"),
        (
            "sampling_begins_with_noise_of_its_factor",
            with_model(ignore_the_noise_factor),
            "the first noise is not that of its factor",
        ),
    ],
)
def test_what_breaks_a_law_is_found(law: str, recipe: Recipe, message: str, workspaces: Any) -> None:
    with pytest.raises((AssertionError, ValueError), match=message):
        LAWS_BY_NAME[law](recipe, workspaces("difformer"))


def test_a_model_that_changes_while_it_generates_is_found(
    workspaces: Callable[[str], Workspace], tmp_path: Path
) -> None:
    forgetful = Forgetful(tmp_path, workspaces("difformer").changes)
    with pytest.raises(AssertionError):
        generating_leaves_the_model_as_it_was(find_recipe("difformer"), forgetful)
