"""A student's target is the estimate that leads in one step to where its teacher's two steps lead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from noise2text.commands.display import SilentDisplay
from noise2text.commands.train import train
from noise2text.core.errors import Problem
from noise2text.core.random import gaussian_noise, make_key
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.sampler import ReverseProcess, sample
from noise2text.diffusion.schedules import SCHEDULES, Schedule
from noise2text.diffusion.solvers import Ddim, Solver
from noise2text.models.folder import load, load_config
from noise2text.nn.denoiser import Constraint, Denoiser, EncoderOutput, Estimate, NoiseLevel
from noise2text.recipes import difformer
from noise2text.training.progressive_distillation import (
    ProgressiveDistillation,
    StudentTimes,
    two_step_target,
)

from ..conftest import SMALL

ALL = [make(2000) for make in SCHEDULES.values()]
NOTHING = EncoderOutput(*torch.zeros(4, 1))
B, L, D = 6, 3, 4
FREE = Constraint(torch.zeros(B, L, D), *torch.zeros(2, B, L, dtype=torch.bool))


class LinearDenoiser(Denoiser):
    """ẑ₀ = A(t)·z + half of the previous estimate: linear, and different at each noise level."""

    def encode(self, source: Any) -> EncoderOutput:
        return NOTHING

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        z0 = (level.alpha + 0.3 * level.sigma).to(z.dtype) * z.flip(2)
        z0 = z0 if self_condition is None else z0 + self_condition / 2
        return Estimate(z0, z0)


class PerfectDenoiser(LinearDenoiser):
    """Always knows z₀."""

    def __init__(self, z0: Tensor) -> None:
        super().__init__()
        self.z0 = z0

    def forward(self, z: Tensor, *others: Any) -> Estimate:
        return Estimate(self.z0, self.z0)


def ddim(z: Tensor, z0: Tensor, now: NoiseLevel, then: NoiseLevel) -> Tensor:
    """One deterministic step, written as in the paper: predict the noise, then add less of it."""
    noise = (z - now.alpha * z0) / now.sigma
    return then.alpha * z0 + then.sigma * noise


@pytest.mark.parametrize("schedule", ALL)
def test_one_step_with_the_target_ends_where_the_teachers_two_steps_end(schedule: Schedule) -> None:
    z_t = torch.randn(B, L, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    t = torch.linspace(1 / B, 1, B, dtype=torch.float64)
    times = t, t - 0.5 / B, t - 1 / B
    start, middle, end = (schedule(time, L) for time in times)
    teacher, guess = LinearDenoiser(), torch.ones_like(z_t)
    first = teacher(z_t, start, NOTHING, FREE, guess).z0
    z_m = ddim(z_t, first, start, middle)
    second = teacher(z_m, middle, NOTHING, FREE, first).z0
    target = two_step_target(teacher, schedule, NOTHING, FREE, z_t, times=times, self_condition=guess)
    assert torch.allclose(ddim(z_t, target, start, end), ddim(z_m, second, middle, end), atol=1e-8)
    assert torch.allclose(target[0], second[0])  # the last step ends at the estimate itself
    assert not torch.allclose(target[1:], second[1:], atol=1e-3)


@pytest.mark.parametrize("schedule", ALL)
def test_the_target_of_a_perfect_teacher_is_z0(schedule: Schedule) -> None:
    z0, noise = torch.randn(2, B, L, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    t = torch.linspace(1 / B, 1, B, dtype=torch.float64)
    z_t = schedule(t, L).add_noise(z0, noise)
    target = two_step_target(
        PerfectDenoiser(z0), schedule, NOTHING, FREE, z_t, times=(t, t - 0.5 / B, t - 1 / B)
    )
    assert torch.allclose(target, z0, atol=1e-6)


@pytest.mark.parametrize("schedule", ALL)
def test_the_target_of_a_student_of_one_step_is_what_the_teacher_samples_in_two(schedule: Schedule) -> None:
    keys, t = make_key(0, torch.arange(B)), torch.ones(B, dtype=torch.float64)
    level = schedule(t, L)
    z_t = level.sigma.float() * gaussian_noise(keys, 0, L, D)
    teacher = LinearDenoiser()
    target = two_step_target(teacher, schedule, NOTHING, FREE, z_t, times=(t, t / 2, 0 * t))
    times, solver = torch.tensor([1.0, 0.5]), Solver(Ddim(0.0))
    sampled = sample(ReverseProcess(teacher, schedule, NOTHING, FREE, keys, times, solver=solver))
    assert torch.allclose(target, sampled.z0, atol=1e-5)


def test_given_positions_stay_given() -> None:
    embeddings = torch.full((B, L, D), 9.0, dtype=torch.float64)
    given = torch.arange(L).expand(B, L) == 1
    t = torch.ones(B, dtype=torch.float64)
    target = two_step_target(
        LinearDenoiser(),
        ALL[0],
        NOTHING,
        Constraint(embeddings, given, torch.zeros_like(given)),
        torch.ones(B, L, D, dtype=torch.float64),
        times=(t, t * 0.75, t * 0.5),
    )
    assert (target[given] == 9).all()
    assert (target[~given] != 9).all()


def test_a_student_is_asked_at_its_own_times_only() -> None:
    times, weights = StudentTimes(2000, steps=4)(torch.linspace(0, 0.999, 1000, dtype=torch.float64))
    values, counts = times.unique(return_counts=True)
    assert values.tolist() == [0.25, 0.5, 0.75, 1]
    assert counts.tolist() == [250, 250, 250, 250] or abs(counts - 250).max() <= 1
    assert (weights == 1).all()


CHANGES = SMALL | {"optim.steps": 6, "save_every": 2, "validate_every": 6, "dropout": 0.1}


def files(dates: Path) -> dict[str, Any]:
    return {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}


@pytest.fixture(scope="module")
def teacher(dates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    train("difformer", out=out, preset="tiny", changes=CHANGES, device="cpu", **files(dates))
    return out


def train_student(dates: Path, teacher: Path, out: Path, changes: Any = None, **more: Any) -> None:
    asked = {"student_steps": 2, "from_folder": str(teacher), "tokenizer": "folder"}
    changes = CHANGES | asked | (changes or {})
    train("difformer", out=out, preset="tiny", changes=changes, device="cpu", **files(dates), **more)


class Killed(Exception):
    pass


class DyingDisplay(SilentDisplay):
    def progress(self, step: int, summary: str) -> None:
        if step >= 4:
            raise Killed


def test_a_student_that_was_killed_and_resumed_is_the_same(
    dates: Path, teacher: Path, tmp_path: Path
) -> None:
    train_student(dates, teacher, tmp_path / "whole")
    with pytest.raises(Killed):
        train_student(dates, teacher, tmp_path / "again", {"log_every": 2}, display=DyingDisplay())
    train_student(dates, teacher, tmp_path / "again", resume=True)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]
    student = load(tmp_path / "whole", device="cpu", precision="float32")
    own, original = student.state_dict(), load(teacher, device="cpu", precision="float32").state_dict()
    assert torch.equal(own["denoiser.embedding.weight"], original["denoiser.embedding.weight"])
    name = "denoiser.output_projection.weight"
    assert not torch.equal(own[name], original[name])
    config = student.generation_config
    assert (config.steps, config.stop_early, config.eta) == (3, 1, 0.0)  # two calls, at times 1 and 1/2


def test_a_student_starts_as_its_teacher_and_learns_its_tokens(teacher: Path) -> None:
    _, config = load_config(teacher)
    config = config.replace(student_steps=2, from_folder=str(teacher))
    original = load(teacher, device="cpu", precision="float32")
    student = difformer.build(config, original.tokenizer)
    difformer.initialize(config, student)
    assert all(torch.equal(a, b) for a, b in zip(student.parameters(), original.parameters(), strict=True))
    objective = difformer.objective(config, student)
    assert isinstance(objective, ProgressiveDistillation)
    (inner,) = objective._teacher
    objective.train()
    assert not inner.training
    assert {id(each) for each in objective.parameters()} <= {id(each) for each in student.parameters()}
    rows = RaggedRows.from_lists([[8, 9], [10, 11, 12]])
    canvas = student.layout.make_canvas(rows, rows)
    draws = objective.draw(canvas, make_key(0, torch.arange(2)), make_key(0))
    constraint = student.denoiser.constrain(canvas)
    z_t = torch.randn_like(constraint.embeddings)
    relabeled, target = objective.make_targets(canvas, constraint.embeddings, z_t, constraint, draws)
    assert torch.equal(
        relabeled.tokens[canvas.scored], inner.embedding.logits(target).argmax(-1)[canvas.scored]
    )
    assert torch.equal(relabeled.tokens[~canvas.scored], canvas.tokens[~canvas.scored])
    assert not target.requires_grad


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"from_folder": "", "tokenizer": "characters"}, "needs a teacher"),
        ({"tokenizer": "bpe", "vocabulary": 300}, "other tokens"),
        ({"ffn_dim": 48}, "shape of its teacher"),
        ({"schedule": "cosine"}, "shape of its teacher"),
        ({"boundary_confidence": 0.5}, "boundary_confidence to 0"),
        ({"source_dropout": 0.5}, "never trained without sources"),
        ({"student_steps": 1_500}, "half of num_timesteps"),
    ],
)
def test_what_is_no_teacher_is_refused(
    dates: Path, teacher: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(Problem, match=message):
        train_student(dates, teacher, tmp_path / "run", changes)


def test_a_teacher_is_of_the_same_recipe(dates: Path, tmp_path: Path) -> None:
    changes = {"optim.steps": 1, "validate_every": 1, "tokenizer": "characters", "max_tokens": 256}
    train("gru", out=tmp_path / "gru", preset="tiny", changes=changes, device="cpu", **files(dates))
    with pytest.raises(Problem, match="is no difformer, but gru"):
        train_student(dates, tmp_path / "gru", tmp_path / "run")
