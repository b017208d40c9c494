"""Diffusion-LM learns whole pairs, some with their source given; in sampling the source always is."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch

from noise2text.core.config import get_setting
from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.layouts.joint import InfillingLayout, PairGenerationLayout
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.sampler import ReverseProcess, SampledStep, sample
from noise2text.diffusion.solvers import strided_times
from noise2text.diffusion.time_samplers import UniformTimes
from noise2text.models.registry import find_recipe
from noise2text.recipes.diffusion_lm import PRESETS, PairDiffusionModel
from noise2text.training.objective import DiffusionObjective

from ..conftest import lively

SOURCES, TARGETS = [[8, 9, 10, 11], [12, 13]], [[20, 21, 22], [23, 24, 25, 26, 27]]
THESIS_4_1_2 = {  # typed from its list, and from table 4.4
    "embedding_dim": 256,
    "num_timesteps": 4000,
    "generation.steps": 4000,
    "schedule": "sqrt",
    "clip_norm": 0.0,
    "clamp": True,
    "optim.steps": 600_000,
    "vocabulary": 30_000,
    "model_dim": 768,
    "layers": 12,
    "heads": 12,
}


def make(tokenizer: Tokenizer) -> tuple[PairDiffusionModel, DiffusionObjective]:
    torch.manual_seed(0)
    small: dict[str, Any] = {"model_dim": 32, "ffn_dim": 64, "heads": 2, "layers": 2, "embedding_dim": 8}
    config = PRESETS["tiny"].replace(small, max_source=8, max_target=6)
    model = find_recipe("diffusion-lm").build(config, tokenizer)
    return model, find_recipe("diffusion-lm").objective(config, model)


@pytest.mark.parametrize("row", THESIS_4_1_2)
def test_the_preset_is_the_thesis(row: str) -> None:
    assert get_setting(PRESETS["covost-de-en"], row) == THESIS_4_1_2[row]


def test_a_canvas_has_64_positions_and_a_step_128_pairs(tokenizer: Tokenizer) -> None:
    preset = PRESETS["covost-de-en"]
    with torch.device("meta"):
        assert find_recipe("diffusion-lm").build(preset, tokenizer).layout.width == 64
    micro_batch = preset.optim.max_tokens // max(preset.data.max_source, preset.data.max_target)
    assert preset.optim.accumulate * micro_batch == 128


def test_in_training_the_whole_canvas_is_noised_and_counted(tokenizer: Tokenizer) -> None:
    model, objective = make(tokenizer)
    canvas = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    draws = objective.draw(canvas, make_key(0, torch.arange(2)), make_key(0))
    seen: list[torch.Tensor] = []
    model.denoiser.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    token_losses = objective(canvas, draws)
    z0 = model.denoiser.embedding.embed(canvas.tokens) + objective.z0_noise * draws.z0_noise
    level = model.schedule(draws.t, canvas.tokens.shape[1])
    assert torch.allclose(seen[0], (level.alpha * z0 + level.sigma * draws.noise).float(), atol=1e-5)
    assert all(token_loss.mask.all() for token_loss in token_losses.values())
    assert isinstance(objective.time_sampler, UniformTimes)


def test_in_a_share_of_the_pairs_the_source_is_given_as_in_sampling(tokenizer: Tokenizer) -> None:
    model, _ = make(tokenizer)
    assert isinstance(model.layout, InfillingLayout)
    assert model.layout.given_source == PRESETS["tiny"].diffusion.given_source == 0.5
    whole = model.layout.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    canvas = model.layout.randomize(whole, torch.tensor([0.49, 0.5]))
    (as_sampled,) = model.layout.generation_rounds(whole)
    for mask in ("given", "scored"):
        assert torch.equal(getattr(canvas, mask)[0], getattr(as_sampled, mask)[0])
        assert torch.equal(getattr(canvas, mask)[1], getattr(whole, mask)[1])
    assert torch.equal(canvas.tokens, whole.tokens)


def test_published_no_source_is_given_in_training(tokenizer: Tokenizer) -> None:
    for name in ("covost-de-en", "tiny-published"):
        assert PRESETS[name].diffusion.given_source == 0
    published = find_recipe("diffusion-lm").build(PRESETS["tiny-published"], tokenizer).layout
    whole = published.make_canvas(RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS))
    assert not published.randomize(whole, torch.zeros(2)).given.any()


def test_in_sampling_the_source_is_filled_in_at_every_step(tokenizer: Tokenizer) -> None:
    model = make(tokenizer)[0].eval()
    source = model.layout.make_source(RaggedRows.from_lists(SOURCES))
    canvas = model.layout.make_empty_canvas(source, torch.ones(2, 1), width=0)
    constraint, times = model.denoiser.constrain(canvas), strided_times(4, num_timesteps=200)
    encoded, keys, steps = model.denoiser.encode(source), make_key(torch.arange(2)), list[SampledStep]()
    with torch.no_grad():
        sample(ReverseProcess(model.denoiser, model.schedule, encoded, constraint, keys, times), steps.append)
    assert canvas.given.sum(1).tolist() == [6, 4]
    assert len(steps) == 4
    assert all(torch.equal(step.z[canvas.given], constraint.embeddings[canvas.given]) for step in steps)


# Pairs without a source, and infilling of any part


def test_pairs_come_from_noise_alone_and_each_from_its_own(tokenizer: Tokenizer) -> None:
    model = lively(make(tokenizer)[0])
    made = model.generate_pairs(5, steps=4)
    assert len(made) == 5
    assert len(set(made)) > 1
    assert made == model.generate_pairs(5, steps=4, batch=2)
    assert made[:3] == model.generate_pairs(3, steps=4)
    assert made != model.generate_pairs(5, steps=4, seed=1)
    assert model.generate_pairs(0, steps=4) == []


@pytest.mark.parametrize(
    ("source", "target", "patterns"),
    [
        ("7 mai", "", (r"7 mai", r".*")),  # translation
        ("7 mai", "19___", (r"7 mai", r"19.*")),  # a prefix
        ("7 mai", "___{2}-07", (r"7 mai", r".{2}-07")),  # a suffix
        ("7 mai", "1___{2}-", (r"7 mai", r"1.{2}-")),  # the middle
        ("7 ___{3}", "", (r"7 .{3}", r".*")),  # a part of the source
        ("___{3}ai", "1957", (r".{3}ai", r"1957")),  # the source of a target
        ("7 m___", "", (r"7 m.*", r".*")),  # as much of the source as it likes
    ],
)
@pytest.mark.parametrize("strategy", ["parallel", "token-by-token"])
def test_any_part_of_a_pair_can_be_filled_in(
    strategy: str, source: str, target: str, patterns: tuple[str, str], tokenizer: Tokenizer
) -> None:
    made = lively(make(tokenizer)[0]).generate_pairs(
        3, source=source, target=target, steps=3, strategy=strategy
    )
    if "___{" in source or "___" not in source:
        assert all(re.fullmatch(patterns[0], src) and re.fullmatch(patterns[1], trg) for src, trg in made)
    else:
        assert all(re.fullmatch(patterns[0], src + trg) for src, trg in made)


def test_what_is_given_of_a_pair_stays_at_every_step(tokenizer: Tokenizer) -> None:
    model = make(tokenizer)[0].eval()
    layout = PairGenerationLayout(
        **{f.name: getattr(model.layout, f.name) for f in dataclasses.fields(PairGenerationLayout)}
    )
    given = model._pair("7 ___{3}", "19___{2}-")
    blank = layout.make_empty_canvas(
        layout.make_source(RaggedRows.from_lists([[], []])), torch.ones(2, 2), width=0
    )
    assert blank.given.sum(1).tolist() == [1] * 4
    canvas = layout.apply_template(blank, given)
    (want,) = tokenizer.encode(["7 19-"])
    given_tokens = canvas.tokens[0, canvas.given[0]].tolist()
    assert given_tokens[:6] == [tokenizer.bos, *want[:2], tokenizer.sep, *want[2:4]]
    assert given_tokens[6:8] == [want[4], tokenizer.eos]
    assert (~canvas.given).sum(1).tolist() == [5] * 4
    constraint, encoded = model.denoiser.constrain(canvas), model.denoiser.encode(canvas.source)
    keys, times, steps = make_key(torch.arange(4)), strided_times(4, num_timesteps=200), list[SampledStep]()
    with torch.no_grad():
        sample(ReverseProcess(model.denoiser, model.schedule, encoded, constraint, keys, times), steps.append)
    assert len(steps) == 4
    for step in steps:
        assert torch.equal(step.z[canvas.given], constraint.embeddings[canvas.given])
        assert torch.equal(step.estimate.z0[canvas.given], constraint.embeddings[canvas.given])


def test_a_pair_is_read_up_to_its_end() -> None:
    layout = PairGenerationLayout(0, bos=1, sep=2, eos=3, width=7)
    tokens = torch.tensor([[1, 5, 2, 6, 3, 7, 0], [1, 5, 6, 0, 2, 7, 3], [1, 2, 5, 2, 6, 7, 8]])
    assert layout.extract_targets(
        layout.make_empty_canvas(
            layout.make_source(RaggedRows.from_lists([[]] * 3)), torch.ones(3, 1), width=0
        ),
        tokens,
    ) == [
        [5, 2, 6],
        [5, 6],
        [2, 5, 2, 6, 7, 8],
    ]
    shared = dataclasses.replace(layout, eos=2)  # BERT's separator is its end, too
    assert shared.extract_targets(
        shared.make_empty_canvas(layout.make_source(RaggedRows.from_lists([[]])), torch.ones(1, 1), width=0),
        tokens[2:],
    ) == [[2, 5]]


def test_pairs_that_cannot_be_are_refused(tokenizer: Tokenizer) -> None:
    model = make(tokenizer)[0]
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"source": "7 ___", "target": "19___"}, "only if the source's gaps have a width"),
        ({"target": "1957"}, "only if the source's gaps have a width"),
        ({"source": "7 mai", "target": "1957"}, "tokens: give fewer"),
        ({"source": "___{16}"}, "tokens: give fewer"),
        ({"source": "7 mai", "target": "___-07"}, "only the last gap of a template may be open"),
        ({"prefix": "19"}, "no prefix, suffix or template"),
        ({"guide": "a", "guide_class": "b"}, "cannot guide pairs"),
        ({"noise_beam": 5}, "the setting noise_beam has no effect"),
    )
    for config, said in cases:
        with pytest.raises(Problem, match=said):
            model.generate_pairs(2, steps=2, **config)
    plain = find_recipe("diffuseq").build(find_recipe("diffuseq").preset("tiny"), tokenizer)
    with pytest.raises(Problem, match="generates targets, not sources"):
        plain.generate_pairs(2)
