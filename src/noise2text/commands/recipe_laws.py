"""The laws of every recipe: settings, training, folders and generation.

A law is a function that raises an `AssertionError` with one sentence if a recipe breaks it. Each trains or
generates with a few examples of the task of dates, on the CPU, in seconds. The recipe needs a small preset;
`tiny` is taken if there is one. `diffusion_laws.py` has the laws of diffusion models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noise2text.commands.train import train
from noise2text.core.config import apply_overrides, describe, has_setting
from noise2text.core.config_files import read_config, to_yaml
from noise2text.core.errors import Problem
from noise2text.core.files import write_text_file
from noise2text.core.random import make_key
from noise2text.data.batching import BatchPlan
from noise2text.data.dates import write_dates
from noise2text.data.layouts.base import Canvas
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer, learn_characters
from noise2text.models.base import Model
from noise2text.models.folder import load, load_config, save
from noise2text.models.registry import Recipe
from noise2text.training.checkpoint import list_checkpoints
from noise2text.training.objective import DiffusionObjective, Objective
from noise2text.training.optimizer import build_adamw

__all__ = [
    "RECIPE_LAWS",
    "DoesNotApply",
    "Law",
    "Workspace",
    "generating_leaves_the_model_as_it_was",
    "list_short_rows",
    "require_steps",
]

SOURCES = ["sunday, 7 april 1957", "12. mai 2001", "1 june 1999", "3. 3. 2044", "friday, 1 may 1964"]
SHORT_SOURCES, SHORT_TARGETS = ["1 may", "june", "3. 3. 44"], ["1957", "04-07", "12"]
FEW_STEPS = {"optim.steps": 4, "run.log_every": 1, "run.validate_every": 2, "run.save_every": 2}


@dataclass(frozen=True)
class Workspace:
    """A folder with a small corpus of dates, a short training of the recipe, and its untrained model."""

    folder: Path
    changes: Mapping[str, Any]
    tokenizer: Tokenizer = field(
        default_factory=lambda: learn_characters(["abcdefghijklmnopqrstuvwxyz 0123456789,.-"])
    )
    _resolved: dict[str, Any] = field(default_factory=dict)  # the config of each recipe

    @classmethod
    def create(cls, folder: Path, recipe: Recipe, changes: Mapping[str, Any] | None = None) -> Workspace:
        """Write the corpus; further changes make the recipe smaller than its preset."""
        write_dates(folder, pairs=100, seed=0)
        config = recipe.preset(_small_preset(recipe))
        known = {name for name, _, _ in describe(config)}
        short: dict[str, Any] = {"data.tokenizer": "characters", "run.validation_sentences": 2} | FEW_STEPS
        wanted = {name: value for name, value in short.items() if name in known} | dict(changes or {})
        return cls(folder, wanted)

    def config(self, recipe: Recipe, changes: Mapping[str, Any] | None = None) -> Any:
        """The small config, with all that depends on the vocabulary."""
        if recipe.name not in self._resolved:
            config = apply_overrides(
                recipe.preset(_small_preset(recipe)), self.changes, origin="check-recipe"
            )
            self._resolved[recipe.name] = recipe.resolve(config, self.tokenizer)
        return apply_overrides(self._resolved[recipe.name], changes or {}, origin="check-recipe")

    def build(self, recipe: Recipe, changes: Mapping[str, Any] | None = None) -> tuple[Model, Objective]:
        """A small untrained model, and its objective."""
        require_steps(recipe)
        config = self.config(recipe, changes)
        torch.manual_seed(0)
        model: Model = recipe.build(config, self.tokenizer).eval()
        return model, recipe.objective(config, model)

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

    def trained_model(self, recipe: Recipe) -> Model:
        """The model that several laws check, trained only once."""
        out = self.folder / "trained"
        is_trained = (out / "config.json").exists()
        return load(out, device="cpu", precision="float32") if is_trained else self.train(recipe, "trained")


class DoesNotApply(Exception):
    """Raised by a law that does not apply to a recipe, with the reason."""


Law = Callable[[Recipe, Workspace], None]


def require_steps(recipe: Recipe) -> None:
    """Raise `DoesNotApply` for a recipe without training steps."""
    if recipe.fit is not None:
        raise DoesNotApply("it is fitted in one go, without training steps")


def presets_build_and_survive_yaml(recipe: Recipe, workspace: Workspace) -> None:
    """Every preset builds a model, explains its settings, and its YAML file gives the same config back."""
    for name in recipe.presets:
        config = recipe.preset(name)
        path = workspace.folder / f"{name}.yaml"
        write_text_file(path, to_yaml(config))
        again = apply_overrides(recipe.preset(), read_config(path), origin=str(path))
        assert again == config, f"the preset {name} is not the same after YAML"
        unexplained = [setting for setting, _, help in describe(config) if not help]
        assert not unexplained, f"the setting {unexplained[0]} has no line of help"
        with torch.device("meta"):
            recipe.build(config, workspace.tokenizer)


def a_number_out_of_range_is_refused_by_the_config(recipe: Recipe, workspace: Workspace) -> None:
    """A config refuses what a model, AdamW or the batches could not take, or they take it."""
    require_steps(recipe)
    config = recipe.preset(_small_preset(recipe))
    for setting, value, _ in describe(config):
        for wrong in _unlikely_values(value):
            try:
                changed = config.replace({setting: wrong})
            except Problem:
                continue
            try:
                _use_settings(recipe, changed, workspace.tokenizer)
            except Exception as error:
                raise AssertionError(f"{setting}={wrong} is not refused, and then fails: {error}") from error


def training_is_deterministic(recipe: Recipe, workspace: Workspace) -> None:
    """The same seed gives the same weights, and training changes them."""
    first, second = _weights(workspace.trained_model(recipe)), _weights(workspace.train(recipe, "again"))
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
        model = recipe.build(config, workspace.trained_model(recipe).tokenizer)
        assert any(not torch.equal(first[name], tensor) for name, tensor in _weights(model).items()), (
            "training changes nothing"
        )


def a_resumed_run_equals_an_uninterrupted_one(recipe: Recipe, workspace: Workspace) -> None:
    """Two steps, then two more after a resume, give the weights of four steps."""
    require_steps(recipe)
    constant = {"optim.lr_schedule": "constant"}  # other schedules depend on the number of steps
    workspace.train(recipe, "whole", constant)
    workspace.train(recipe, "resumed", constant | {"optim.steps": "2"})
    workspace.train(recipe, "resumed", constant | {"optim.steps": "4"}, resume=True)
    whole, resumed = (_last_weights(workspace.folder / name) for name in ("whole", "resumed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole), "a resumed run ends differently"


def every_parameter_learns(recipe: Recipe, workspace: Workspace) -> None:
    """Each parameter that is trained has a gradient, with self-conditioning and without."""
    model, objective = workspace.build(recipe)
    canvas = model.layout.make_canvas(*list_short_rows(model))
    diffusion = [each for each in objective.modules() if isinstance(each, DiffusionObjective)]
    for self_conditioning in (0.0, 1.0) if diffusion else (0.0,):
        for each in diffusion:
            each.self_conditioning = self_conditioning
        objective.zero_grad()
        losses = objective(canvas, objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0)))
        objective.loss({name: token_loss.total() for name, token_loss in losses.items()}).backward()
        for name, parameter in model.named_parameters():
            learns = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
            assert learns or not parameter.requires_grad, f"the parameter {name} learns nothing"


def padding_changes_no_term_of_the_loss(recipe: Recipe, workspace: Workspace) -> None:
    """Pairs have the same losses on a canvas that is wider than they need."""
    model, objective = workspace.build(recipe)
    if model.layout.has_no_padding:
        raise DoesNotApply("its canvas has no padding: what fills it up is generated, too")
    rows = list_short_rows(model)
    tight, wide = (model.layout.make_canvas(*rows, shape=shape) for shape in ((0, 0), (12, 11)))
    if _shapes(tight) == _shapes(wide):  # a layout whose canvases are all of one width
        tight = _without_last_padding(wide)
    assert _shapes(tight) != _shapes(wide), "no pair has padding, although the layout says so"
    without, with_padding = _compute_losses(objective, tight), _compute_losses(objective, wide)
    for name, loss in without.items():
        assert torch.allclose(loss, with_padding[name], rtol=1e-5), f"the loss {name} depends on the padding"


def texts_depend_on_the_seed_alone(recipe: Recipe, workspace: Workspace) -> None:
    """The same seed gives the same texts in every batch, whatever the other inputs are."""
    model = workspace.trained_model(recipe)
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


def padding_changes_no_candidate(recipe: Recipe, workspace: Workspace) -> None:
    """A short text has the same candidates and scores beside a long one and alone."""
    model = workspace.trained_model(recipe)
    options = _few_generation_steps(model, clamp=False)
    texts = ["mai", "sunday, 7 april 1957, in the evening"]
    together, alone = model.generate(texts, batch=2, **options), model.generate(texts[:1], **options)
    assert together.candidates[0] == alone.candidates[0], "a candidate depends on the padding"
    assert np.allclose(together.scores[0], alone.scores[0], atol=1e-4), "a score depends on the padding"


def generation_is_free_of_dropout(recipe: Recipe, workspace: Workspace) -> None:
    """What is generated between two training steps, as for a validation, is what an evaluation generates."""
    require_steps(recipe)
    dropout = {"dropout": 0.9} if has_setting(workspace.config(recipe), "dropout") else {}
    model, objective = workspace.build(recipe, dropout)
    options = _few_generation_steps(model)
    first = model.generate(SOURCES[:2], **options)
    objective.train()  # as each step of the training loop does
    again = model.generate(SOURCES[:2], **options)
    assert again.candidates == first.candidates, "a candidate depends on the dropout of training"
    assert again.scores == first.scores, "a score depends on the dropout of training"


def a_saved_model_generates_the_same(recipe: Recipe, workspace: Workspace) -> None:
    """A model that was saved and loaded has the same weights and texts."""
    model, folder = workspace.trained_model(recipe), workspace.folder / "saved"
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
    model = workspace.trained_model(recipe)
    before = copy.deepcopy(_weights(model))
    model.generate(SOURCES, **_few_generation_steps(model))
    after = _weights(model)
    assert all(torch.equal(before[name], after[name]) for name in before)


RECIPE_LAWS: tuple[Law, ...] = (
    presets_build_and_survive_yaml,
    a_number_out_of_range_is_refused_by_the_config,
    every_parameter_learns,
    padding_changes_no_term_of_the_loss,
    training_is_deterministic,
    a_resumed_run_equals_an_uninterrupted_one,
    texts_depend_on_the_seed_alone,
    padding_changes_no_candidate,
    generation_is_free_of_dropout,
    a_saved_model_generates_the_same,
    generating_leaves_the_model_as_it_was,
)


def list_short_rows(model: Model) -> tuple[RaggedRows, RaggedRows]:
    """The tokens of three short sources and of their targets, all of different lengths."""
    sources, targets = (
        RaggedRows.from_lists(model.tokenizer.encode(texts)) for texts in (SHORT_SOURCES, SHORT_TARGETS)
    )
    return sources, targets


def _shapes(canvas: Canvas) -> tuple[torch.Size, torch.Size]:
    return canvas.tokens.shape, canvas.source.tokens.shape


def _without_last_padding(canvas: Canvas) -> Canvas:
    """The canvas without the last columns, where they are padding in every row."""
    width = int((~canvas.padding).any(0).nonzero().max()) + 1
    names = ("tokens", "given", "padding", "scored")
    return replace(canvas, **{name: getattr(canvas, name)[:, :width] for name in names})


def _compute_losses(objective: Objective, canvas: Canvas) -> dict[str, Tensor]:
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(5))
    return {name: token_loss.total() for name, token_loss in objective(canvas, draws).items()}


def _unlikely_values(value: Any) -> list[Any]:
    """What a number of this kind is unlikely to be."""
    if isinstance(value, tuple):
        return [(1.5, 0.9), (-1.0, 0.9)]
    return [0, -1] if type(value) is int else [-1.0, float("nan")] if type(value) is float else []


def _use_settings(recipe: Recipe, config: Any, tokenizer: Tokenizer) -> None:
    """Build what reads the numbers: the model, without its weights, its optimizer and its batches."""
    with torch.device("meta"):
        model: Model = recipe.build(config, tokenizer)
    build_adamw(model, config.optim, torch.device("cpu"))
    plan = BatchPlan(np.array([[3, 4]]), max_tokens=config.optim.max_tokens, seed=config.run.seed)
    plan.epoch_batches(0)


def _small_preset(recipe: Recipe) -> str:
    return "tiny" if "tiny" in recipe.presets else recipe.default_preset


def _weights(model: Model) -> dict[str, Tensor]:
    return dict(model.state_dict())


def _last_weights(run: Path) -> dict[str, Tensor]:
    """The weights of a run's last checkpoint."""
    return _weights(load(list_checkpoints(run)[-1], device="cpu", precision="float32"))


def _few_generation_steps(model: Model, **settings: Any) -> dict[str, Any]:
    """Generation settings that take little time, and further ones, where the model has them."""
    wanted = {"steps": 3, "stop_early": 0, "iterations": 3} | settings
    return {name: value for name, value in wanted.items() if has_setting(model.generation_config, name)}
