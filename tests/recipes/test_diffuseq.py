"""DiffuSeq's settings are those of its section 4.1; only the target is noised, learned and written."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from noise2text.commands.display import SilentDisplay
from noise2text.commands.train import train
from noise2text.core.config import get_setting
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.diffuseq_losses import LOSS_TERMS
from noise2text.diffusion.loss_aware_times import LossAwareTimes
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.schedules import SqrtSchedule
from noise2text.diffusion.solvers import strided_times
from noise2text.models import DiffusionModel
from noise2text.models.registry import find_recipe, list_recipes
from noise2text.nn.denoiser import ClampedDenoiser
from noise2text.recipes.diffuseq import PRESETS, DiffuSeqConfig
from noise2text.training.objective import DiffusionObjective

from ..conftest import SMALL, shrunk

COLUMNS = ["qqp", "quasar-t", "wiki-auto", "commonsense-conversation"]
SECTION_4_1: dict[str, list[Any]] = {  # typed from the paper, and from the released scripts for the training
    "layers": [12] * 4,
    "heads": [12] * 4,
    "model_dim": [768] * 4,
    "ffn_dim": [3072] * 4,
    "embedding_dim": [128] * 4,
    "num_timesteps": [2000] * 4,
    "schedule": ["sqrt"] * 4,
    "generation.steps": [2000] * 4,
    "noise_beam": [10] * 4,
    "clamp": [True] * 4,
    "optim.steps": [50_000, 40_000, 80_000, 140_000],
    "lr": [1e-4] * 4,
    "weight_decay": [0.0] * 4,
    "clip_norm": [0.0] * 4,
    "warmup": [0] * 4,
    "lr_schedule": ["linear"] * 4,
    "ema_decay": [0.9999] * 4,
    "dropout": [0.1] * 4,
    "time_sampler": ["loss-aware"] * 4,
    "loss_positions": ["equation-2"] * 4,
    "noise_factor": [1.0] * 4,
    "anchor_weight": [0.0] * 4,
    "align_targets": [False] * 4,
}
SOURCES = [[8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]]
CHANGES = {name: value for name, value in SMALL.items() if not name.endswith("coder_layers")} | {"layers": 2}


def config(**changes: Any) -> DiffuSeqConfig:
    return PRESETS["tiny"].replace(CHANGES | {"max_source": 8, "max_target": 6} | changes)


def make(tokenizer: Tokenizer, **changes: Any) -> tuple[DiffusionModel, DiffusionObjective]:
    torch.manual_seed(0)
    model = find_recipe("diffuseq").build(config(**changes), tokenizer)
    return model, find_recipe("diffuseq").objective(config(**changes), model)


def batch(model: DiffusionModel) -> Any:
    return model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))


@pytest.mark.parametrize("row", SECTION_4_1)
def test_presets_are_section_4_1(row: str) -> None:
    assert [get_setting(PRESETS[column], row) for column in COLUMNS] == SECTION_4_1[row]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_canvas_has_128_positions_and_a_step_2048_pairs(column: str, tokenizer: Tokenizer) -> None:
    preset = PRESETS[column]
    with torch.device("meta"):
        model = find_recipe("diffuseq").build(preset, tokenizer)
    assert model.layout.width == 128
    micro_batch = preset.optim.max_tokens // max(preset.data.max_source, preset.data.max_target)
    assert micro_batch == 64
    assert preset.optim.accumulate * micro_batch == 2048


@pytest.mark.parametrize(
    "name", sorted(n for n in list_recipes() if n.startswith("diffuseq") and n != "diffuseq-decoupled")
)
def test_demirags_models_are_trained_by_algorithm_6(name: str) -> None:
    assert find_recipe(name).preset("covost-de-en").diffusion.loss_positions == "algorithm-6"


def test_the_noise_of_z0_is_the_published_one() -> None:
    """β₀ = 0.01464 and √β₀ = 0.1210 for the square-root schedule of 2,000 steps."""
    schedule = SqrtSchedule(2000)
    assert schedule.z0_noise == pytest.approx(0.1210, abs=5e-5)
    assert schedule.z0_noise**2 == pytest.approx(0.01464, abs=5e-6)
    assert 0 < schedule.final_alpha < 1e-3


def test_in_training_the_source_is_not_noised_and_the_target_is(tokenizer: Tokenizer) -> None:
    model, objective = make(tokenizer)
    canvas = batch(model)
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    seen: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    objective(canvas, draws)
    z0 = model.denoiser.embedding.embed(canvas.tokens) + objective.z0_noise * draws.z0_noise
    assert len(seen) == 1  # there is no self-conditioning
    assert torch.equal(seen[0][canvas.given], z0[canvas.given])
    level = model.schedule(draws.t, canvas.tokens.shape[1])
    noisy = (level.alpha * z0 + level.sigma * draws.noise).float()
    assert torch.allclose(seen[0][~canvas.given], noisy[~canvas.given], atol=1e-5)


def test_aligned_targets_begin_at_one_position_whatever_their_sources(tokenizer: Tokenizer) -> None:
    """That of the longest source, so that the n-th words of both sides are always equally far apart."""
    model = make(tokenizer, align_targets=True)[0]
    canvas = batch(model)
    assert canvas.scored.int().argmax(1).tolist() == [8 + 2] * 3
    assert model.layout.extract_targets(canvas, canvas.tokens) == TARGETS
    apart = batch(make(tokenizer)[0])
    assert apart.scored.int().argmax(1).tolist() == [len(source) + 2 for source in SOURCES]
    texts = ["7 april", "12. mai", "3 june"]
    together, alone = (model.generate(texts, batch=size, steps=4).candidates for size in (3, 1))
    assert together == alone


@pytest.mark.parametrize("recipe", ["word-by-word", "diffuseq-decoupled"])
def test_recipes_that_cannot_align_targets_say_so(recipe: str) -> None:
    with pytest.raises(Problem, match=f"align_targets is not for {recipe}"):
        find_recipe(recipe).preset("tiny").replace(align_targets=True)


@pytest.mark.parametrize("clamp", [False, True])
def test_in_sampling_the_source_stays_at_its_embedding_at_every_step(
    tokenizer: Tokenizer, clamp: bool
) -> None:
    model = make(tokenizer)[0].eval()
    source = model.layout.make_source(RaggedRows.from_lists(SOURCES))
    canvas = model.layout.make_empty_canvas(source, torch.ones(3, 2), width=0)
    denoiser = ClampedDenoiser(model.denoiser) if clamp else model.denoiser
    constraint, times = denoiser.constrain(canvas), strided_times(5, num_timesteps=200)
    given = model.denoiser.embedding.embed(canvas.tokens)[canvas.given]
    encoded, keys, steps = denoiser.encode(source), make_key(0, torch.arange(6)), list[SampledStep]()
    with torch.no_grad():
        sample(ReverseProcess(denoiser, model.schedule, encoded, constraint, keys, times), steps.append)
    assert len(steps) == 5
    for step in steps:
        assert torch.equal(step.z[canvas.given], given)
        assert torch.equal(step.estimate.z0[canvas.given], given)
        if clamp:  # the anchoring function also rounds
            nearest = model.denoiser.embedding.nearest(step.estimate.z0)
            assert torch.equal(model.denoiser.embedding.embed(nearest), step.estimate.z0)


def test_a_candidate_depends_neither_on_the_batch_nor_on_the_beam(tokenizer: Tokenizer) -> None:
    model = make(tokenizer)[0]
    texts = ["7 april", "12. mai", "3 june"]
    options: dict[str, Any] = {"steps": 4, "noise_beam": 3, "clamp": False}
    together, apart = (model.generate(texts, batch=size, **options) for size in (3, 1))
    assert together.candidates == apart.candidates
    assert [len(candidates) for candidates in together.candidates] == [3] * 3
    alone = model.generate(texts, **(options | {"noise_beam": 1}))
    assert [row[0] for row in alone.candidates] == [row[0] for row in together.candidates]


def test_loss_positions_count_what_they_say(tokenizer: Tokenizer) -> None:
    """Canvases of 8 + 6 + 3 positions; the sources with their marks take 6, 4 and 5 of them."""
    whole, target = [17, 17, 17], [11, 13, 12]
    expected = {
        "equation-2": {"vlb": target, "rounding": whole, "prior": whole},
        "algorithm-6": {"vlb": whole, "rounding": target},
        "released": {"vlb": whole, "rounding": whole, "prior": whole},
        "target": {"vlb": target, "rounding": target, "prior": target},
    }
    assert set(expected) == set(LOSS_TERMS)
    for name, counts in expected.items():
        model, objective = make(tokenizer, loss_positions=name)
        canvas = batch(model)
        token_losses = objective(canvas, objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0)))
        assert {term: token_losses[term].mask.sum(1).tolist() for term in objective.weights} == counts
        for term, count in counts.items():
            where = torch.ones_like(canvas.given) if count == whole else ~canvas.given
            assert torch.equal(token_losses[term].mask, where)


def test_the_nll_is_logged_with_and_without_padding(tokenizer: Tokenizer) -> None:
    """Each target has its tokens and an end; neither nll is trained on."""
    model, objective = make(tokenizer)
    canvas = batch(model)
    token_losses = objective(canvas, objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0)))
    assert token_losses["nll"].mask.sum(1).tolist() == [11, 13, 12]
    assert token_losses["nll_text"].mask.sum(1).tolist() == [len(target) + 1 for target in TARGETS]
    text = token_losses["nll_text"].mask
    assert torch.equal(canvas.tokens[text], canvas.tokens[~canvas.given & (canvas.tokens != tokenizer.pad)])
    assert torch.equal(token_losses["nll_text"].values, token_losses["nll"].values)
    assert not {"nll", "nll_text"} & set(objective.weights)


def test_the_noise_factor_multiplies_the_noise_of_training_alone(tokenizer: Tokenizer) -> None:
    model, objective = make(tokenizer, noise_factor=4.0)
    t = torch.tensor([0.3, 1.0], dtype=torch.float64)
    plain, noisier = model.schedule(t, 5), objective.schedule(t, 5)
    assert torch.allclose(noisier.sigma, 4 * plain.sigma)
    assert torch.equal(noisier.alpha, plain.alpha)
    assert model.build_sampling_schedule(model.generation_config) is model.schedule


@pytest.mark.parametrize(
    "name", ["diffuseq", "diffuseq-guided", "diffuseq-kernel", "diffusion-lm", "word-by-word"]
)
def test_the_anchor_adds_the_nll_of_the_estimate_to_the_loss(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    chosen = shrunk(recipe.preset("tiny"), layers=2)
    model = recipe.build(chosen, tokenizer)
    canvas = batch(model)
    losses = []
    for anchor_weight in (0.0, 0.5):
        objective = recipe.objective(chosen.replace(anchor_weight=anchor_weight), model).eval()
        token_losses = objective(canvas, objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0)))
        means = {
            term: token_loss.total() / token_loss.mask.sum() for term, token_loss in token_losses.items()
        }
        losses.append(objective.loss(means))
    assert losses[1].item() == pytest.approx((losses[0] + 0.5 * means["nll"]).item(), rel=1e-5)
    assert means["anchor"] == means["nll"]  # without label smoothing


def test_weights_start_as_berts_and_embeddings_at_unit_variance(tokenizer: Tokenizer) -> None:
    model = make(tokenizer, model_dim=128, ffn_dim=256, heads=4, embedding_dim=64)[0]
    weights = [module.weight for module in model.denoiser.modules() if isinstance(module, torch.nn.Linear)]
    assert torch.cat([weight.flatten() for weight in weights]).std().item() == pytest.approx(0.02, rel=0.02)
    assert model.denoiser.embedding.vectors.std().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("loss_positions", LOSS_TERMS)
def test_every_parameter_gets_a_gradient(tokenizer: Tokenizer, loss_positions: str) -> None:
    model, objective = make(tokenizer, loss_positions=loss_positions)
    canvas = batch(model)
    token_losses = objective(canvas, objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0)))
    objective.loss({name: token_loss.total() for name, token_loss in token_losses.items()}).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_time_sampler_observes_the_unweighted_error_of_each_row(tokenizer: Tokenizer) -> None:
    model, objective = make(tokenizer, num_timesteps=10)
    canvas = batch(model)
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    draws = dataclasses.replace(draws, t=torch.tensor([0.2, 0.5, 0.9]), weight=torch.tensor([0.5, 1.0, 4.0]))
    token_losses = objective(canvas, draws)
    objective.observe(*objective.collect_observations(draws, token_losses))
    time_sampler = objective.time_sampler
    assert isinstance(time_sampler, LossAwareTimes)
    plain = objective(canvas, dataclasses.replace(draws, weight=torch.ones(3)))["vlb"]
    for row, place in enumerate([1, 4, 8]):
        expected = plain.values[row][~canvas.given[row]].mean().item()
        assert time_sampler.losses[place, 0].item() == pytest.approx(expected, rel=1e-5)
    assert time_sampler.counts.tolist() == [0, 1, 0, 0, 1, 0, 0, 0, 1, 0]


class Trap(SilentDisplay):
    """Dies at a step, as if the machine had."""

    def progress(self, step: int, summary: str) -> None:
        if step >= 6:
            raise RuntimeError("killed")


def test_what_the_times_observed_survives_a_killed_run(dates: Path, tmp_path: Path) -> None:
    files: dict[str, Any] = {name: str(dates / f"{name}.jsonl") for name in ("train", "valid")}
    more = {
        "optim.steps": 8,
        "save_every": 4,
        "validate_every": 8,
        "num_timesteps": 2,
        "generation.steps": 2,
    }

    def run(out: str, **options: Any) -> None:
        train(
            "diffuseq",
            out=tmp_path / out,
            preset="tiny",
            changes=CHANGES | more,
            device="cpu",
            **files,
            **options,
        )

    run("whole")
    with pytest.raises(RuntimeError, match="killed"):
        run("killed", display=Trap())
    run("killed", resume=True)
    whole, killed = (
        load_file(tmp_path / out / "checkpoint-00000008" / "training.safetensors")
        for out in ("whole", "killed")
    )
    assert whole["observed.time_sampler.counts"].min() >= 10  # so the times were drawn by their losses
    assert whole.keys() == killed.keys()
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


def test_equation_8_is_equation_9_on_two_words() -> None:
    """Summed over all paths of two words and three values of y, in three steps, in both orders."""
    torch.manual_seed(0)
    steps, words, values = 3, range(2), range(3)
    start = torch.rand(3).double()  # p(y_T)
    round_, embed = torch.rand(steps + 1, 3, 2).double(), torch.rand(steps, 2, 3).double()
    start, round_, embed = start / start.sum(), round_ / round_.sum(-1, True), embed / embed.sum(-1, True)
    equation_8, equation_9 = torch.zeros(2).double(), torch.zeros(2).double()
    for final in words:
        for w in itertools.product(words, repeat=steps):  # w_1 … w_T
            for y in itertools.product(values, repeat=steps + 1):  # y_0 … y_T
                eight = start[y[steps]] * round_[0, y[0], final]
                for t in range(steps, 0, -1):
                    eight = eight * round_[t, y[t], w[t - 1]] * embed[t - 1, w[t - 1], y[t - 1]]
                nine = start[y[steps]] * round_[steps, y[steps], w[steps - 1]]
                path = (final, *w)
                for t in range(steps - 1, -1, -1):
                    nine = nine * embed[t, path[t + 1], y[t]] * round_[t, y[t], path[t]]
                equation_8[final] += eight
                equation_9[final] += nine
    assert torch.allclose(equation_8, equation_9, rtol=1e-12)
    assert equation_8.sum().item() == pytest.approx(1)
    chain = start @ round_[steps]  # both are a chain from words to words (iter-NAR)
    for t in range(steps - 1, -1, -1):
        chain = chain @ (embed[t] @ round_[t])
    assert torch.allclose(chain, equation_9, rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"heads": 5}, "heads"),
        ({"schedule": "square"}, "schedule"),
        ({"loss_positions": "equation-3"}, "loss_positions"),
        ({"time_sampler": "often"}, "time_sampler"),
        ({"layers": 0}, "layers"),
        ({"dropout": -0.1}, "dropout"),
        ({"noise_factor": 0.0}, "noise_factor"),
        ({"anchor_weight": -1.0}, "anchor_weight"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        DiffuSeqConfig().replace(changes)
