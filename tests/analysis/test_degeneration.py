"""The degenerated model: its score over time, rescaled schedules, and theorem 1's loss."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm

from noise2text.analysis.catalogue import ANALYSES
from noise2text.analysis.degeneration import (
    DegenerationOptions,
    ScheduleAndEmbeddings,
    degenerated_losses,
    degeneration_curves,
    loss_curves,
    rescaled_schedules,
)
from noise2text.analysis.inputs import Inputs
from noise2text.core.errors import Problem
from noise2text.diffusion.degeneration_score import random_embeddings
from noise2text.diffusion.schedules import LinearSchedule, Rescaled, SqrtSchedule

from .models import find_model_folder

analyze_degeneration = ANALYSES["degeneration"]


def naive(table: np.ndarray, word: int, z: np.ndarray) -> float:
    """Definition 1 and equation 7 word by word, in numpy and scipy."""

    def loss(x: np.ndarray, y: int) -> float:
        nll = logsumexp(table @ x) - table[y] @ x
        return float(np.mean((x - table[y]) ** 2) + nll)

    answer = min(range(len(table)), key=lambda y: loss(z, y))
    return loss(table[answer], word)


def test_the_loss_of_theorem_1_equals_its_definition_word_by_word() -> None:
    table = random_embeddings(40, 6, seed=3)
    noise = [0.0, 0.3, 0.8, 1.0]
    losses = degenerated_losses(table, noise, samples=30, seed=5)
    generator = torch.Generator().manual_seed(11)
    words = torch.randint(40, (30,), generator=generator)
    epsilon = torch.randn(30, 6, generator=generator, dtype=torch.float64).numpy()
    rows = table.double().numpy()
    for level, found in zip(noise, losses, strict=True):
        for word, own, loss in zip(words.tolist(), epsilon, found.tolist(), strict=True):
            z = math.sqrt(1 - level) * rows[word] + math.sqrt(level) * own
            assert loss == pytest.approx(naive(rows, word, z), abs=1e-9)


def test_the_loss_is_nothing_where_the_paper_says_so() -> None:
    """Figure 5: at d = 64 up to β̄ = 0.15, at d = 128 for about half of β̄; never at d = 16."""
    found = loss_curves(noise=[0.15, 0.5, 0.9], samples=100)
    loss = {(row["embeddings"], row["beta_bar"]): row["loss"] for row in found.rows}
    assert loss["d = 64", 0.15] < 1e-3  # type: ignore[operator]
    assert loss["d = 128", 0.5] < 1e-3  # type: ignore[operator]
    assert loss["d = 16", 0.15] > 1  # type: ignore[operator]
    assert all(loss[f"d = {dim}", 0.9] > 10 for dim in (16, 32, 64, 128))  # type: ignore[operator]


@pytest.mark.parametrize("noise", [[-0.1], [1.5]])
def test_a_noise_that_is_no_share_is_refused(noise: list[float]) -> None:
    with pytest.raises(Problem, match="between 0 and 1"):
        degenerated_losses(random_embeddings(5, 2), noise)


def test_two_words_on_a_line_have_the_closed_form_of_dgs() -> None:
    """Words at ±1 in one dimension: right when α·e + σ·ε is on the word's side, Φ(α/σ)."""
    case = ScheduleAndEmbeddings(SqrtSchedule(), torch.tensor([[-1.0], [1.0]]))
    found = degeneration_curves({"sqrt": case}, cells=10, samples=20_000)
    assert len(found.rows) == 10
    for row in found.rows:
        alpha_bar = SqrtSchedule().alpha_bar(torch.tensor(row["time"], dtype=torch.float64)).item()
        expected = norm.cdf(math.sqrt(alpha_bar / (1 - alpha_bar)))
        assert row["dgs"] == pytest.approx(expected, abs=0.015)


def test_the_known_schedules_have_the_scores_of_the_papers_table_2() -> None:
    found = degeneration_curves(cells=40, samples=500)
    means = {
        name: np.mean([row["dgs"] for row in found.rows if row["schedule"] == name])
        for name in ("linear", "cosine", "sqrt")
    }
    assert means == pytest.approx({"linear": 0.47, "cosine": 0.77, "sqrt": 0.77}, abs=0.03)


def test_a_rescaled_schedule_has_the_signal_of_its_factor() -> None:
    found = rescaled_schedules(LinearSchedule(), factors=(1, 3), points=8)
    by = {(row["factor"], row["time"]): row for row in found.rows}
    for (factor, time), row in by.items():
        plain = by[1, time]
        assert row["alpha"] == plain["alpha"]
        assert row["sigma"] == pytest.approx(factor * plain["sigma"])  # type: ignore[operator]
        snr = (plain["alpha"] / plain["sigma"]) ** 2 / factor**2 if plain["sigma"] else math.inf  # type: ignore[operator]
        assert row["signal"] == pytest.approx(1 / (1 + 1 / snr))
    with pytest.raises(Problem, match="above 0"):
        rescaled_schedules(factors=(0,))


def test_a_model_is_looked_at_as_it_is_and_as_it_was_trained(tmp_path: Path) -> None:
    folder = find_model_folder("difformer", tmp_path / "own")
    small = {"samples": "50", "cells": "4"}
    curves, _, losses = analyze_degeneration(Inputs(models=[folder], options=small))
    names = dict.fromkeys(row["schedule"] for row in curves.rows)
    assert list(names) == ["own", "own, in training"]
    mean = {name: sum(row["dgs"] for row in curves.rows if row["schedule"] == name) for name in names}  # type: ignore[misc]
    assert mean["own, in training"] < mean["own"]  # the factor 2 takes some of it away
    assert {row["embeddings"] for row in losses.rows} == {"own"}


def test_a_baseline_has_no_schedule_to_look_at(tmp_path: Path) -> None:
    folder = find_model_folder("transformer", tmp_path / "teacher")
    with pytest.raises(Problem, match="degeneration score needs a diffusion model, but teacher is not one"):
        analyze_degeneration(Inputs(models=[folder]))


def test_the_rescaling_of_training_is_that_of_the_settings(tmp_path: Path) -> None:
    folder = find_model_folder("difformer", tmp_path / "own")
    found = analyze_degeneration(Inputs(models=[folder], options={"samples": "50", "cells": "4"}))[0]
    from noise2text.models import DiffusionModel
    from noise2text.models.folder import load

    model = load(folder, device="cpu", precision="float32")
    assert isinstance(model, DiffusionModel)
    table = model.denoiser.embedding.vectors.detach()
    again = degeneration_curves(
        {"F": ScheduleAndEmbeddings(Rescaled(model.schedule, 2.0), table)}, cells=4, samples=200
    )
    assert [row["dgs"] for row in again.rows] == [row["dgs"] for row in found.rows[4:]]


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(Problem, match="vocabulary"):
        DegenerationOptions(vocabulary=1)
