"""SeqDiffuSeq's settings are those of its table 6; its schedule survives whatever happens to a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from noise2text import load
from noise2text.commands.display import SilentDisplay
from noise2text.commands.train import train
from noise2text.core.config import apply_overrides, get_setting
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.schedules import SqrtSchedule
from noise2text.diffusion.solvers import ANCESTRAL
from noise2text.generation.config import DiffusionGenerationConfig, PriorSamplingGenerationConfig
from noise2text.models import DiffusionModel
from noise2text.recipes.seqdiffuseq import (
    PRESETS,
    SeqDiffuSeqConfig,
    build,
    objective,
)
from noise2text.training.adaptive_objective import AdaptiveObjective

from ..conftest import SMALL, shrunk

COLUMNS = ["iwslt14-de-en", "wmt14-en-de", "qqp", "wiki-auto", "quasar-t", "commonsense-conversation"]
TABLE_6: dict[str, list[Any]] = {  # typed from the paper: table 6, then section 5.3 and appendix D.1
    "encoder_layers": [6] * 6,
    "decoder_layers": [6] * 6,
    "heads": [8, 8, 12, 12, 12, 12],
    "model_dim": [512, 512, 768, 768, 768, 768],
    "ffn_dim": [2048, 2048, 3072, 3072, 3072, 3072],
    "embedding_dim": [128] * 6,
    "lowercase": [False, False, True, True, True, True],  # bert-base-uncased
    "max_source": [128] * 6,
    "max_target": [63] * 6,  # and the end: 64 positions
    "dropout": [0.3, 0.3, 0.1, 0.1, 0.1, 0.1],
    "num_timesteps": [2000] * 6,
    "generation.steps": [2000] * 6,
    "lr": [1e-4] * 6,
    "warmup": [10_000] * 6,
    "lr_schedule": ["linear"] * 6,
    "optim.steps": [1_000_000] * 6,
    "refit_every": [20_000] * 6,
    "refit_bin_size": [20] * 6,
    "self_conditioning": [0.5] * 6,
    "max_tokens": [128 * 64, 1024 * 64, 128 * 64, 128 * 64, 128 * 64, 128 * 64],
    "betas": [(0.9, 0.999)] * 6,  # the rest from the released scripts
    "weight_decay": [0.0] * 6,
    "clip_norm": [0.0] * 6,
    "ema_decay": [0.9999] * 6,
}
SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]]


def test_the_paper_translates_in_both_directions_with_the_same_settings() -> None:
    assert PRESETS["iwslt14-en-de"] == PRESETS["iwslt14-de-en"]
    assert PRESETS["wmt14-de-en"] == PRESETS["wmt14-en-de"]


@pytest.mark.parametrize("row", TABLE_6)
def test_presets_are_table_6(row: str) -> None:
    assert [get_setting(PRESETS[column], row) for column in COLUMNS] == TABLE_6[row]


def test_there_is_a_preset_for_each_task_and_tiny() -> None:
    assert set(PRESETS) == {
        *COLUMNS,
        "iwslt14-en-de",
        "wmt14-de-en",
        "wmt16-en-ro",
        "gigaword",
        "tiny",
        "small",
    }


def made(tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, AdaptiveObjective]:
    config = shrunk(PRESETS["tiny"], **changes)
    torch.manual_seed(0)
    model = build(config, tokenizer)
    adaptive = objective(config, model)
    assert isinstance(adaptive, AdaptiveObjective)
    return model, adaptive


def test_the_terms_are_equation_6_over_the_whole_canvas(tokenizer: Tokenizer) -> None:
    model, eq6 = made(tokenizer)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert eq6.weights == {"vlb": 1.0, "rounding": 1.0, "prior": 1.0}
    counts = eq6.counts(canvas)
    assert [int(counts[name]) for name in eq6.weights] == [3 * 17] * 3
    assert int(counts["difficulty"]) == sum(len(target) + 1 for target in TARGETS)
    assert eq6.z0_noise == pytest.approx(0.1210, abs=5e-5)


def test_the_first_step_aims_at_the_embedding_the_others_at_z0(tokenizer: Tokenizer) -> None:
    model, eq6 = made(tokenizer, dropout=0.0)
    embedding = model.denoiser.embedding
    assert embedding.scale == 1
    assert embedding.bias is not None
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = eq6.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    draws = dataclasses.replace(draws, t=torch.tensor([1, 2, 2000]) / 2000, self_conditioned=False)
    passes: list[tuple[torch.Tensor, torch.Tensor]] = []
    model.denoiser.register_forward_hook(lambda module, given, out: passes.append((given[0], out.z0)))
    value = eq6(canvas, draws)["vlb"].values
    ((z_t, estimate),) = passes
    clean = embedding.embed(canvas.tokens)
    z0 = clean + eq6.z0_noise * draws.z0_noise
    level = model.schedule(draws.t, 17)
    assert torch.allclose(z_t.double(), level.alpha * z0 + level.sigma * draws.noise, atol=1e-5)
    target = torch.cat([clean[:1], z0[1:]])
    assert torch.allclose(value, (estimate - target).square().mean(-1), atol=1e-6)


def test_the_schedule_sees_the_squared_errors_of_what_is_not_padding(tokenizer: Tokenizer) -> None:
    model, eq6 = made(tokenizer, dropout=0.0)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = eq6.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    token_losses = eq6(canvas, draws)
    eq6.observe(*eq6.collect_observations(draws, token_losses))
    schedule = eq6.adaptive_schedule
    assert schedule.counts.sum(0).tolist() == [3, 3, 2, 2, 1, 1, *[0] * 11]
    text = canvas.tokens != model.tokenizer.pad
    expected = torch.where(text, token_losses["vlb"].values, 0).sum(0).double()
    assert torch.allclose(schedule.loss_sums.sum(0), expected)


def test_refits_are_decided_by_the_step_alone(tokenizer: Tokenizer) -> None:
    model, eq6 = made(tokenizer, refit_every=10, refit_start=20, refit_min_count=1)
    schedule = model.schedule
    assert isinstance(schedule, AdaptiveSchedule)
    t = (torch.arange(2000) + 1) / 2000
    losses = t[:, None].square().expand(-1, 16)
    refitted = []
    for step in range(1, 43):
        before = schedule.alpha_bars.clone()
        schedule.observe(t, losses, torch.ones_like(losses, dtype=torch.bool))
        eq6.adapt(step)
        if not torch.equal(before, schedule.alpha_bars):
            refitted.append(step)
        if step == 11:
            assert schedule.counts.sum() == 0  # a period before the first refit leaves nothing behind
    assert refitted == [21, 31, 41]


def test_no_refits_keep_the_square_root(tokenizer: Tokenizer) -> None:
    model, eq6 = made(tokenizer, refit_every=0)
    before = model.schedule.state_dict()["alpha_bars"].clone()
    for step in range(1, 50):
        eq6.adapt(step)
    assert torch.equal(model.schedule.state_dict()["alpha_bars"], before)


# Sampling by the prior


@pytest.mark.parametrize(
    "config",
    [
        PriorSamplingGenerationConfig(steps=9),
        PriorSamplingGenerationConfig(steps=9, prior_rate=1, prior_share=0),
    ],
)
def test_without_the_prior_it_is_ancestral(config: PriorSamplingGenerationConfig) -> None:
    rho = torch.rand(8, 4, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    share = config.build_solver(3).stochasticity(rho)
    assert torch.equal(share, ANCESTRAL.stochasticity(rho))
    assert torch.equal(share, DiffusionGenerationConfig().build_solver(3).stochasticity(rho))


def test_the_prior_takes_its_share_of_the_first_steps(tokenizer: Tokenizer) -> None:
    rho = torch.full((1999, 1, 1), 0.4, dtype=torch.float64)
    config = PriorSamplingGenerationConfig(prior_rate=0.25, prior_share=0.5)
    share, other = (config.build_solver(seed).stochasticity(rho).flatten() for seed in (0, 1))
    assert set(share.tolist()) == {0.6, 1.0}
    assert (share[1000:] == 0.6).all()
    assert abs((share[:1000] == 1).double().mean().item() - 0.25) < 0.05
    assert not torch.equal(share, other)


def test_texts_by_the_prior_depend_on_the_seed_not_on_the_batch(tokenizer: Tokenizer) -> None:
    model = made(tokenizer)[0].eval()
    texts = ["sunday, 7 april 1957", "12. mai 2001", "mai"]
    config: dict[str, Any] = {"steps": 6, "noise_beam": 2, "seed": 1}

    def scores(**more: Any) -> list[list[float]]:
        return model.generate(texts, **(config | more)).scores

    ancestral = scores()
    assert scores(prior_rate=0.0, prior_share=1.0) == ancestral
    drawn = scores(prior_rate=1.0)
    assert drawn != ancestral
    single = scores(prior_rate=1.0, batch=1)
    assert torch.allclose(torch.tensor(drawn), torch.tensor(single), atol=1e-4)


# Runs

CHANGES = SMALL | {
    "optim.steps": 12,
    "save_every": 4,
    "validate_every": 6,
    "generation.steps": 3,
    "num_timesteps": 20,
    "refit_bin_size": 5,
    "refit_every": 3,
    "refit_start": 3,
    "refit_min_count": 1,
    "dropout": 0.1,
    "ema_decay": 0.9,
    "max_tokens": 256,
}


class Killed(Exception):
    pass


class Trap(SilentDisplay):
    """Dies at a step, as if the machine had."""

    def progress(self, step: int, summary: str) -> None:
        if step >= 10:
            raise Killed


def run(dates: Path, out: Path, **more: Any) -> DiffusionModel:
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    model = train("seqdiffuseq", out=out, preset="tiny", changes=CHANGES, device="cpu", **files, **more)
    assert isinstance(model, DiffusionModel)
    return model


def test_a_refitted_run_that_died_ends_the_same(dates: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(dates, whole)
    with pytest.raises(Killed):
        run(dates, broken, display=Trap())
    saved = load_file(broken / "checkpoint-00000008" / "model.safetensors")
    start = AdaptiveSchedule(SqrtSchedule(20), 16, bin_size=5).alpha_bars
    assert not torch.equal(saved["schedule.alpha_bars"], start)  # refitted before it died
    assert saved["schedule.counts"].sum() > 0  # and with losses of the next period
    run(dates, broken, resume=True)
    last = Path("checkpoint-00000012")
    for file in (last / "model.safetensors", last / "training.safetensors", Path("model.safetensors")):
        first, second = load_file(whole / file), load_file(broken / file)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first), file


def test_the_schedule_is_part_of_the_model_folder(dates: Path, tmp_path: Path) -> None:
    run(dates, tmp_path / "run")
    weights = load_file(tmp_path / "run" / "model.safetensors")
    refitted = weights["schedule.alpha_bars"]
    assert (refitted.diff(dim=0) < 0).all()
    for precision in ("float32", "bfloat16"):
        model = load(tmp_path / "run", device="cpu", precision=precision)
        assert torch.equal(model.state_dict()["schedule.alpha_bars"], refitted)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"heads": 3}, "heads"),
        ({"dropout": 1.5}, "dropout"),
        ({"refit_bin_size": 30}, "refit_bin_size"),
        ({"num_timesteps": 20}, "num_timesteps"),
        ({"refit_every": -1}, "refit_every"),
        ({"max_target": 0}, "max_target"),
        ({"average_best": 5}, "average_best must be 1"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        SeqDiffuSeqConfig().replace(changes)


@pytest.mark.parametrize("name", ["prior_rate", "prior_share"])
def test_shares_of_the_prior_are_shares(name: str) -> None:
    with pytest.raises(Problem, match=name):
        apply_overrides(PriorSamplingGenerationConfig(), {name: 1.5}, origin="generate")
