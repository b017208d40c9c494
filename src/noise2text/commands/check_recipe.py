"""`noise2text check-recipe`: the laws that every recipe keeps, this package's and those of other packages.

A law is a function that raises an `AssertionError` with one sentence if a recipe breaks it. Each trains or
generates with a few examples of the task of dates, on the CPU, in seconds. The recipe needs a small preset;
`tiny` is taken if there is one.

    for law in LAWS:
        law(recipe, Workspace.create(folder, recipe))
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noise2text.commands.train import train
from noise2text.core.config import apply_overrides, describe, has_setting
from noise2text.core.config_files import read_config, to_yaml
from noise2text.core.files import write_text_file
from noise2text.data.dates import write_dates
from noise2text.data.tokenizer import Tokenizer, learn_characters
from noise2text.models.base import Model
from noise2text.models.folder import load, load_config, save
from noise2text.models.registry import Recipe
from noise2text.training.checkpoint import list_checkpoints

__all__ = ["LAWS", "DoesNotApply", "Law", "LawResult", "Workspace", "check_recipe"]

SOURCES = ["sunday, 7 april 1957", "12. mai 2001", "1 june 1999", "3. 3. 2044", "friday, 1 may 1964"]
FEW_STEPS = {"optim.steps": 4, "run.log_every": 1, "run.validate_every": 2, "run.save_every": 2}


@dataclass(frozen=True)
class Workspace:
    """A folder with a small corpus of dates, and a short training of the recipe."""

    folder: Path
    changes: Mapping[str, Any]

    @classmethod
    def create(cls, folder: Path, recipe: Recipe, changes: Mapping[str, Any] | None = None) -> Workspace:
        """Write the corpus; further changes make the recipe smaller than its preset."""
        write_dates(folder, pairs=100, seed=0)
        config = recipe.preset(_small_preset(recipe))
        known = {name for name, _, _ in describe(config)}
        short: dict[str, Any] = {"data.tokenizer": "characters", "run.validation_sentences": 2} | FEW_STEPS
        wanted = {name: value for name, value in short.items() if name in known} | dict(changes or {})
        return cls(folder, wanted)

    def train(
        self, recipe: Recipe, name: str, changes: Mapping[str, Any] | None = None, *, resume: bool = False
    ) -> Model:
        """The recipe's model in float32 after a few steps, trained in a folder of this name."""
        train(
            recipe.name,
            train=str(self.folder / "train.jsonl"),
            valid=str(self.folder / "valid.jsonl"),
            out=self.folder / name,
            preset=_small_preset(recipe),
            changes={**self.changes, **(changes or {})},
            device="cpu",
            resume=resume,
        )
        return load(self.folder / name, device="cpu", precision="float32")

    def trained(self, recipe: Recipe) -> Model:
        """The model that several laws check, trained only once."""
        out = self.folder / "trained"
        is_trained = (out / "config.json").exists()
        return load(out, device="cpu", precision="float32") if is_trained else self.train(recipe, "trained")


@dataclass(frozen=True)
class LawResult:
    """Whether a recipe keeps a law, and if not, what went wrong, or why the law does not apply to it."""

    law: str
    problem: str = ""
    exception: str = ""


class DoesNotApply(Exception):
    """Raised by a law that does not apply to a recipe, with the reason."""


Law = Callable[[Recipe, Workspace], None]


def presets_build_and_survive_yaml(recipe: Recipe, workspace: Workspace) -> None:
    """Every preset builds a model, and its YAML file gives the same config back."""
    tokenizer = _tokenizer()
    for name in recipe.presets:
        config = recipe.preset(name)
        path = workspace.folder / f"{name}.yaml"
        write_text_file(path, to_yaml(config))
        again = apply_overrides(recipe.preset(), read_config(path), origin=str(path))
        assert again == config, f"the preset {name} is not the same after YAML"
        with torch.device("meta"):
            recipe.build(config, tokenizer)


def training_is_deterministic(recipe: Recipe, workspace: Workspace) -> None:
    """The same seed gives the same weights, and training changes them."""
    first, second = _weights(workspace.trained(recipe)), _weights(workspace.train(recipe, "again"))
    assert first.keys() == second.keys(), "two runs have different weights"
    assert all(torch.equal(first[name], second[name]) for name in first), "two runs with one seed differ"
    assert all(bool(torch.isfinite(tensor.float()).all()) for tensor in first.values()), (
        "weights are not finite"
    )
    if recipe.fit is None:
        torch.manual_seed(0)
        config = apply_overrides(
            recipe.preset(_small_preset(recipe)), workspace.changes, origin="check-recipe"
        )
        model = recipe.build(config, workspace.trained(recipe).tokenizer)
        assert any(not torch.equal(first[name], tensor) for name, tensor in _weights(model).items()), (
            "training changes nothing"
        )


def a_resumed_run_equals_an_uninterrupted_one(recipe: Recipe, workspace: Workspace) -> None:
    """Two steps, then two more after a resume, give the weights of four steps."""
    if recipe.fit is not None:
        raise DoesNotApply("it is fitted in one go, so there is nothing to resume")
    constant = {"optim.lr_schedule": "constant"}  # other schedules depend on the number of steps
    workspace.train(recipe, "whole", constant)
    workspace.train(recipe, "resumed", constant | {"optim.steps": "2"})
    workspace.train(recipe, "resumed", constant | {"optim.steps": "4"}, resume=True)
    whole, resumed = (_last_weights(workspace.folder / name) for name in ("whole", "resumed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole), "a resumed run ends differently"


def texts_depend_on_the_seed_alone(recipe: Recipe, workspace: Workspace) -> None:
    """The same seed gives the same texts in every batch, whatever the other inputs are."""
    model = workspace.trained(recipe)
    options = _few_generation_steps(model)
    together = model.generate(SOURCES, seed=3, batch=8, **options)
    alone = [
        model.generate([text], seed=3, indices=[i], **options).texts[0] for i, text in enumerate(SOURCES)
    ]
    assert together.texts == model.generate(SOURCES, seed=3, batch=8, **options).texts, (
        "a second call differs"
    )
    assert together.texts == alone, "a text depends on the batch"
    assert model.generate(["", "  "], **options).texts == ["", ""], "an empty input gives a text"


def a_saved_model_generates_the_same(recipe: Recipe, workspace: Workspace) -> None:
    """A model that was saved and loaded has the same weights and texts."""
    model, folder = workspace.trained(recipe), workspace.folder / "saved"
    _, config = load_config(workspace.folder / "trained")
    save(folder, model, recipe=recipe.name, config=config)
    again = load(folder, device="cpu", precision="float32")
    before, after = _weights(model), _weights(again)
    assert before.keys() == after.keys(), "a loaded model has other weights"
    assert all(torch.equal(before[name], after[name]) for name in before), "a loaded model's weights differ"
    options = _few_generation_steps(model)
    assert model.generate(SOURCES, **options).texts == again.generate(SOURCES, **options).texts


def generating_leaves_the_model_as_it_was(recipe: Recipe, workspace: Workspace) -> None:
    """Weights and buffers are the same before and after a generation."""
    model = workspace.trained(recipe)
    before = copy.deepcopy(_weights(model))
    model.generate(SOURCES, **_few_generation_steps(model))
    after = _weights(model)
    assert all(torch.equal(before[name], after[name]) for name in before)


LAWS: tuple[Law, ...] = (
    presets_build_and_survive_yaml,
    training_is_deterministic,
    a_resumed_run_equals_an_uninterrupted_one,
    texts_depend_on_the_seed_alone,
    a_saved_model_generates_the_same,
    generating_leaves_the_model_as_it_was,
)


def check_recipe(recipe: Recipe, folder: Path) -> Iterator[LawResult]:
    """Whether the recipe keeps each law; corpus and runs are written to the folder."""
    workspace = Workspace.create(folder, recipe)
    for law in LAWS:
        name = law.__name__.replace("_", " ")
        try:
            law(recipe, workspace)
        except DoesNotApply as reason:
            yield LawResult(name, exception=str(reason))
        except Exception as error:  # any error of a recipe is a result
            yield LawResult(name, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        else:
            yield LawResult(name)


def _small_preset(recipe: Recipe) -> str:
    return "tiny" if "tiny" in recipe.presets else recipe.default_preset


def _tokenizer() -> Tokenizer:
    return learn_characters(["abcdefghijklmnopqrstuvwxyz 0123456789,.-"])


def _weights(model: Model) -> dict[str, Tensor]:
    return dict(model.state_dict())


def _last_weights(run: Path) -> dict[str, Tensor]:
    """The weights of a run's last checkpoint."""
    return _weights(load(list_checkpoints(run)[-1], device="cpu", precision="float32"))


def _few_generation_steps(model: Model) -> dict[str, Any]:
    """Generation settings that take little time, where the model has them."""
    config = model.generation_config
    options: dict[str, Any] = {"steps": 3, "stop_early": 0}
    return {name: value for name, value in options.items() if has_setting(config, name)}
