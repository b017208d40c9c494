"""AR-Diffusion: in training and generation every position has its own time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from noise2text.core.config import get_setting
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import LossInputs, MseLoss
from noise2text.diffusion.solvers import ANCESTRAL, StepColumn, strided_times
from noise2text.models import DiffusionModel
from noise2text.nn.denoiser import NoiseLevel
from noise2text.recipes.ar_diffusion import PRESETS, ARDiffusionConfig, build, objective
from noise2text.training.objective import DiffusionObjective

from ..conftest import shrunk

COLUMNS = ["iwslt14-de-en", "iwslt14-en-de", "xsum", "cnn-dailymail"]
RELEASED: dict[str, list[Any]] = {  # typed from the released scripts
    "embedding_dim": [64, 64, 128, 128],
    "ffn_dim": [1024, 1024, 2048, 2048],
    "heads": [4, 4, 8, 8],
    "dropout": [0.2] * 4,
    "model_dim": [256, 256, 512, 512],  # a quarter of ffn_dim
    "optim.steps": [67_500, 51_000, 26_667, 20_000],  # updates: micro-batches over grad_accum
    "lr_schedule": ["linear"] * 4,
    "lr": [2e-3, 1.8e-3, 8e-4, 8e-4],
    "max_target": [89, 89, 49, 179],  # and the end
    "max_source": [256, 90, 512, 512],
    "warmup": [4_000] * 4,
    "ema_decay": [
        0.0,
        0.0,
        0.9997,
        0.9995,
    ],  # 0.9999 per micro-batch; IWSLT14 generates without it
    "clamp": [True] * 4,
    "candidate_is": ["reference"] * 4,
    "self_pair": [False] * 4,
    "anchor_distance": [2.0] * 4,
    "generation.steps": [20] * 4,
    "noise_beam": [50] * 4,
}


@pytest.mark.parametrize("row", RELEASED)
def test_presets_are_the_released_scripts(row: str) -> None:
    assert [get_setting(PRESETS[column], row) for column in COLUMNS] == RELEASED[row]


def made(tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, DiffusionObjective]:
    config = shrunk(PRESETS["tiny"], **changes)
    torch.manual_seed(0)
    model = build(config, tokenizer)
    return model, objective(config, model)


def test_training_noises_the_right_more_and_the_network_is_given_its_timesteps(tokenizer: Tokenizer) -> None:
    model, trained = made(tokenizer)
    canvas = model.layout.make_canvas(
        RaggedRows.from_lists([[8, 9]] * 8), RaggedRows.from_lists([[20, 21, 22]] * 8)
    )
    draws = trained.draw(canvas, make_key(0, torch.arange(8)), make_key(0))
    seen: list[tuple[torch.Tensor, NoiseLevel]] = []
    model.denoiser.register_forward_pre_hook(lambda module, given: seen.append((given[0], given[1])))
    trained(canvas, draws)
    z, level = seen[-1]
    assert (level.sigma.diff(dim=1) >= 0).all()
    assert (level.timestep.diff(dim=1) >= 0).all()
    assert (level.timestep[:, -1] > level.timestep[:, 0]).any()
    z0 = model.denoiser.embedding.embed(canvas.tokens) + trained.z0_noise * draws.z0_noise
    assert torch.allclose(z, (level.alpha * z0 + level.sigma * draws.noise).float(), atol=1e-5)


@dataclass(frozen=True)
class SeenMse(MseLoss):
    """The squared error, which keeps what it was given."""

    seen: list[LossInputs] = field(default_factory=list)

    def value(self, inputs: LossInputs) -> torch.Tensor:
        self.seen.append(inputs)
        return super().value(inputs)


def test_where_a_position_is_at_its_first_step_its_target_is_the_embedding(tokenizer: Tokenizer) -> None:
    """Elsewhere it is the noised z₀, though the sentence has one time."""
    model, trained = made(tokenizer)
    term = SeenMse()
    trained.terms["vlb"] = term
    canvas = model.layout.make_canvas(RaggedRows.from_lists([[8, 9]]), RaggedRows.from_lists([[20, 21, 22]]))
    draws = trained.draw(canvas, make_key(0, torch.arange(1)), make_key(0))
    length, steps = canvas.tokens.shape[1], trained.time_sampler.num_timesteps
    trained(canvas, replace(draws, t=torch.tensor([0.5 * length / (length + steps)])))
    (inputs,) = term.seen
    at_first = inputs.level.timestep[0] * trained.time_sampler.num_timesteps < 0.5  # (L,)
    assert at_first[0]
    assert not at_first[-1]
    embeddings = model.denoiser.embedding.embed(canvas.tokens)
    assert torch.equal(inputs.target[:, at_first], embeddings[:, at_first])
    assert torch.equal(inputs.target[:, ~at_first], inputs.z0[:, ~at_first])
    assert (inputs.z0 != embeddings).all()


def test_a_position_that_reaches_its_first_step_gets_no_noise(tokenizer: Tokenizer) -> None:
    """The mean stays the posterior's: only the weight of the noise differs from ancestral sampling."""
    model, _ = made(tokenizer)
    times = strided_times(1000, num_timesteps=model.schedule.num_timesteps)
    levels = model.schedule(times, model.max_target + 1)  # with the end token
    released = model.generation_config.build_solver(seed=0).steps(levels)  # (K, 7, L)
    usual, noise = ANCESTRAL.steps(levels), StepColumn.NOISE_WEIGHT
    arrived = released[:, StepColumn.TIMESTEP] == 0
    assert arrived[:-1].any()
    assert (usual[:, noise][arrived] > 0).any()
    assert (released[:, noise][arrived] == 0).all()
    assert torch.equal(released[:, noise][~arrived], usual[:, noise][~arrived])
    assert torch.equal(released[:, :noise], usual[:, :noise])


def test_generation_settles_the_left_before_the_right(tokenizer: Tokenizer) -> None:
    """At each step the positions that moved last are the right ones; the first has the least noise left."""
    model, _ = made(tokenizer)
    noise: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, given: noise.append(given[1].sigma[0, :, 0]))
    model.eval().generate(["12. mai 2001"], steps=6)
    levels = torch.stack(noise)  # (steps, positions)
    assert (levels.diff(dim=1) >= 0).all()
    assert (levels.diff(dim=0) <= 0).all()
    halfway = (levels < levels[0] * 0.7).int().argmax(0)  # the step at which each has lost a third
    assert (halfway.diff() >= 0).all()
    assert halfway[0] < halfway[-1]


def test_an_anchor_within_the_canvas_is_refused() -> None:
    with pytest.raises(Problem, match="anchor"):
        ARDiffusionConfig().replace(anchor_distance=0.5)
