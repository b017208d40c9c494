"""The laws of every diffusion model: given tokens stay as they are, and the noise is what the settings say.

They are laws as in `recipe_laws.py`. To models without diffusion they do not apply.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from noise2text.commands.recipe_laws import DoesNotApply, Law, Workspace, list_short_rows
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.layouts.template import Template
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.solvers import strided_times
from noise2text.models.diffusion import DiffusionModel
from noise2text.models.registry import Recipe
from noise2text.training.objective import DiffusionObjective

__all__ = ["DIFFUSION_LAWS"]


def what_is_given_is_not_noised_in_training(recipe: Recipe, workspace: Workspace) -> None:
    """The network reads the embeddings of given tokens, and noise everywhere else."""
    model, objective = _build(recipe, workspace)
    canvas = model.layout.make_canvas(*list_short_rows(model))
    start = canvas.given.int().sum(1, keepdim=True)  # what the layout gives comes first
    place = torch.arange(canvas.tokens.shape[1])
    canvas = dataclasses.replace(canvas, given=place < start + 2)
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    draws = dataclasses.replace(draws, t=torch.tensor([0.3, 0.6, 1.0]))
    z0 = model.denoiser.constrain(canvas).embeddings + objective.z0_noise * draws.z0_noise
    for self_conditioned in (False, True):
        seen = _record_inputs(model)
        objective(canvas, dataclasses.replace(draws, self_conditioned=self_conditioned))
        assert len(seen) == 1 + self_conditioned, "the network is not called once for each estimate"
        for z_t in seen:
            assert torch.equal(z_t[canvas.given], z0[canvas.given]), "a given token is noised"
            unchanged = torch.isclose(z_t[~canvas.given], z0[~canvas.given], atol=1e-4).all(-1)
            assert not unchanged.any(), "a token that is not given has no noise"


def what_is_given_stays_as_it_is_in_sampling(recipe: Recipe, workspace: Workspace) -> None:
    """At every step, z and the estimate have the embeddings of the given tokens."""
    model, _ = _build(recipe, workspace)
    source = model.layout.make_source(list_short_rows(model)[0])
    empty = model.layout.make_empty_canvas(source, torch.tensor([[5, 6], [7, 5], [5, 5]]), width=7)
    piece = tuple(model.tokenizer.encode(["19"])[0])
    try:
        canvas = model.layout.apply_template(empty, Template((piece, ()), (None,)))
    except Problem as problem:
        raise DoesNotApply(f"its texts take no template: {problem}") from problem
    given = canvas.given & ~empty.given
    assert given.sum(1).tolist() == [len(piece)] * 6, "a template gives other tokens than its own"
    schedule = model.build_sampling_schedule(model.generation_config)
    denoiser = model.wrap_denoiser(model.generation_config, schedule)
    constraint, steps = denoiser.constrain(canvas), list[SampledStep]()
    process = ReverseProcess(
        denoiser,
        schedule,
        denoiser.encode(source),
        constraint,
        make_key(0, torch.arange(6)),
        strided_times(5, num_timesteps=model.schedule.num_timesteps),
    )
    with torch.no_grad():
        sample(process, steps.append)
    embeddings = constraint.embeddings[canvas.given]
    for step in steps:
        assert torch.equal(step.z[canvas.given], embeddings), "sampling changes z where tokens are given"
        assert torch.equal(step.estimate.z0[canvas.given], embeddings), "an estimate changes given tokens"


def sampling_begins_with_noise_of_its_factor(recipe: Recipe, workspace: Workspace) -> None:
    """The first canvas is noise, multiplied by `sampling_noise_factor`."""
    model, _ = _build(recipe, workspace)
    seen = _record_inputs(model)
    options: dict[str, Any] = {"steps": 2, "stop_early": 0, "clamp": False, "seed": 1}
    model.generate(["7 april 1957"], sampling_noise_factor=1.0, **options)
    plain = seen[0][0, -1]  # the last position of a canvas is never given
    seen.clear()
    model.generate(["7 april 1957"], sampling_noise_factor=4.0, **options)
    assert plain.abs().max() > 0, "sampling begins without noise"
    assert torch.allclose(seen[0][0, -1], 4 * plain), "the first noise is not that of its factor"


DIFFUSION_LAWS: tuple[Law, ...] = (
    what_is_given_is_not_noised_in_training,
    what_is_given_stays_as_it_is_in_sampling,
    sampling_begins_with_noise_of_its_factor,
)


def _build(recipe: Recipe, workspace: Workspace) -> tuple[DiffusionModel, DiffusionObjective]:
    model, objective = workspace.build(recipe)
    if not isinstance(model, DiffusionModel):
        raise DoesNotApply("it is no diffusion model")
    inner = next((each for each in objective.modules() if isinstance(each, DiffusionObjective)), None)
    if inner is None:
        raise DoesNotApply("its objective is not a DiffusionObjective")
    return model, inner


def _record_inputs(model: DiffusionModel) -> list[Tensor]:
    """The z of every call of the network from now on."""
    seen: list[Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    return seen
