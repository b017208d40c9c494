"""The loss at each time and position, and the learned schedule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.inputs import Inputs
from noise2text.analysis.positions import (
    learned_schedule,
    losses_by_position,
    position_losses,
)
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.corpus import Pair
from noise2text.data.ragged import RaggedRows
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.position_sigmoid import PositionSigmoid
from noise2text.diffusion.schedules import SqrtSchedule
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe

from .models import DIFFUSION, PAIRS, SOURCES, TOKENIZER, find_model_folder, settings_for, tiny

analyze_positions = ANALYSES["positions"]

LENGTHS = [len(pair.trg) for pair in PAIRS]


def build_model(name: str) -> DiffusionModel:
    model = tiny(name)
    assert isinstance(model, DiffusionModel)
    return model


@pytest.mark.parametrize(
    "name", [*DIFFUSION, "diffusion-lm", "word-by-word", "ar-diffusion", "cdcd", "dinoiser"]
)
def test_every_diffusion_model_has_a_loss_at_each_time_and_position(name: str) -> None:
    model = build_model(name)
    objective = find_recipe(name).objective(settings_for(name), model)
    found = losses_by_position(model, objective, PAIRS, points=3, batch=2)
    assert {row["time"] for row in found.rows} == {1 / 3, 2 / 3, 1}
    assert all(row["loss"] >= 0 for row in found.rows)  # type: ignore[operator]
    ended = 1 if model.layout.end_tokens else 0
    if name != "word-by-word":  # which writes one word of each target
        counts = [sum(length + ended > place for length in LENGTHS) for place in range(max(LENGTHS) + ended)]
        assert [row["counted"] for row in found.rows if row["time"] == 1] == counts


def test_the_losses_are_the_objectives_own_at_the_times_asked_for() -> None:
    model = build_model("difformer")
    objective = find_recipe("difformer").objective(settings_for("difformer"), model).eval()
    sums, counts = position_losses(model, objective, PAIRS, times=[0.5], seed=4)
    sources, targets = (
        RaggedRows.from_lists(TOKENIZER.encode(texts)) for texts in (SOURCES, [pair.trg for pair in PAIRS])
    )
    canvas = model.layout.make_canvas(sources, targets)
    draws = objective.draw(canvas, make_key(4, 1, torch.arange(len(PAIRS))), make_key(4, 2, 0))
    with torch.no_grad():
        token_loss = objective(canvas, replace(draws, t=torch.full_like(draws.t, 0.5)))["vlb"]
    assert torch.allclose(sums[0], torch.where(token_loss.mask, token_loss.values, 0).sum(0).double())
    assert counts[0].tolist() == token_loss.mask.sum(0).tolist()


def test_neither_the_batch_nor_the_weights_of_the_times_change_the_losses() -> None:
    model = build_model("diffuseq")
    objective = find_recipe("diffuseq").objective(settings_for("diffuseq"), model)
    together, counts = position_losses(model, objective, PAIRS, times=[0.2, 1.0], batch=64)
    alone, same = position_losses(model, objective, PAIRS, times=[0.2, 1.0], batch=1)
    assert torch.allclose(together, alone, rtol=1e-4)
    assert torch.equal(counts, same)


def test_an_unknown_term_is_named() -> None:
    model = build_model("difformer")
    objective = find_recipe("difformer").objective(settings_for("difformer"), model)
    with pytest.raises(Problem, match="no term 'vib'; it has vlb"):
        losses_by_position(model, objective, PAIRS, term="vib")
    with pytest.raises(Problem, match="'length' has one value per sentence"):
        losses_by_position(model, objective, PAIRS, term="length")


def test_positions_after_one_that_was_never_counted_are_not_lost() -> None:
    model = build_model("word-by-word")
    objective = find_recipe("word-by-word").objective(settings_for("word-by-word"), model)
    pair = Pair("?!", "=" * 12)  # no letter: every token begins a word, and one word is written
    counted = [position_losses(model, objective, [pair], times=[1.0], seed=seed)[1][0] for seed in range(6)]
    assert {len(counts) for counts in counted} != {1}
    assert all(counts[-1] > 0 for counts in counted)


def test_a_schedule_that_has_learned_nothing_is_sqrt_at_every_position() -> None:
    found = learned_schedule(build_model("seqdiffuseq"), points=8)
    assert len({row["position"] for row in found.rows}) == 17
    for row in found.rows:
        assert row["alpha_bar"] == pytest.approx(row["sqrt"], abs=1e-12)


def test_a_schedule_that_has_learned_shows_where_it_left_sqrt() -> None:
    model = build_model("seqdiffuseq")
    schedule = model.schedule
    assert isinstance(schedule, AdaptiveSchedule)
    schedule.alpha_bars[1:-1, 3] /= 2
    found = learned_schedule(model, points=4)
    for row in found.rows:
        inside = row["position"] == 3 and 0 < row["time"] < 1  # type: ignore[operator]
        assert row["alpha_bar"] == pytest.approx(row["sqrt"] / (2 if inside else 1))  # type: ignore[operator]


def test_a_schedule_without_positions_is_one_curve() -> None:
    found = learned_schedule(build_model("difformer"), points=4)
    times = torch.tensor([row["time"] for row in found.rows], dtype=torch.float64)
    assert [row["position"] for row in found.rows] == [0] * 5
    assert [row["alpha_bar"] for row in found.rows] == pytest.approx(SqrtSchedule().alpha_bar(times).tolist())


def test_positions_are_counted_from_the_target_s_start() -> None:
    model = build_model("diffuseq-position-sigmoid")
    assert isinstance(model.schedule, PositionSigmoid)
    found = learned_schedule(model, points=4)
    assert {row["position"] for row in found.rows} == set(range(model.schedule.positions))
    middle = [float(row["alpha_bar"]) for row in found.rows if row["time"] == 0.5]  # type: ignore[arg-type]
    assert middle == sorted(middle, reverse=True)  # the last is noised first
    assert middle[0] > middle[-1]


def test_each_model_gives_its_losses_and_its_schedule(tmp_path: Path) -> None:
    folders = [find_model_folder(name, tmp_path / name) for name in ("difformer", "seqdiffuseq")]
    found = analyze_positions(Inputs(models=folders, pairs=PAIRS, options={"points": "2"}))
    assert [finding.name for finding in found] == [
        f"{kind}-{name}" for name in ("difformer", "seqdiffuseq") for kind in ("losses", "schedule")
    ]


def test_a_baseline_has_no_times(tmp_path: Path) -> None:
    folder = find_model_folder("transformer", tmp_path / "teacher")
    with pytest.raises(Problem, match="loss at each time needs a diffusion model, but teacher is not one"):
        analyze_positions(Inputs(models=[folder], pairs=PAIRS))
