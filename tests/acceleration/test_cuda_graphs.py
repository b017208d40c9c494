"""A recorded step is the plain one: the same texts, for any number of steps and any walk after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from noise2text.acceleration import cuda_graphs as captured
from noise2text.acceleration.cuda_graphs import (
    NOISE_STEPS,
    STEPS_PER_GRAPH,
    GraphCache,
    round_up_batch,
    round_up_length,
)
from noise2text.core.random import make_key
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.sampler import StepTable, build_step_table, ddim, eager, sample, strided_times
from noise2text.diffusion.schedules import SCHEDULES
from noise2text.generation import autoregressive
from noise2text.models import LengthPredictingModel
from noise2text.models.registry import find_recipe, recipes
from noise2text.nn.denoiser import ClampedDenoiser

from ..conftest import Make

TEXTS = ["sunday, 7 april 1957", "12. mai 2001", "3 enero 1999", "den 1. mars 1984", "9 july 2020"]


def test_sizes_are_few_and_large_enough() -> None:
    assert [round_up_batch(n) for n in (1, 2, 3, 5, 64, 65)] == [1, 2, 4, 8, 64, 128]
    widths = {round_up_length(n, 128) for n in range(1, 129)}
    assert len(widths) < 30
    assert all(n <= round_up_length(n, 128) <= n + max(3, n // 4) for n in range(1, 129))
    assert round_up_length(30, 30) == 30


class Replayed:
    """What a recorded graph does, without a GPU: the same function on the same places again."""

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        self.function = function
        for _ in range(captured.WARMUP_RUNS):
            self.output = function()

    def __call__(self) -> Any:
        self.output = self.function()
        return self.output


@pytest.fixture
def graph_cache(monkeypatch: pytest.MonkeyPatch) -> GraphCache:
    monkeypatch.setattr(captured, "Graph", Replayed)
    monkeypatch.setattr(autoregressive, "Graph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    return GraphCache()


def states(
    model: LengthPredictingModel,
    graphs: GraphCache | None,
    *,
    steps: int,
    seed: int,
    order: int,
    last_only: bool = False,
) -> Any:
    with torch.inference_mode():
        source = model.layout.make_source(RaggedRows.from_lists([[8, 9, 10], [13, 14 + seed, 15]]))
        denoiser = ClampedDenoiser(model.denoiser) if seed == 3 else model.denoiser
        encoded = graphs.encode(denoiser, source) if graphs else denoiser.encode(source)
        canvas = model.layout.make_prompt(source, torch.tensor([[4, 3], [2, 4]]), width=4)
        canvas = model.layout.apply_template(canvas, Template(((9 + seed,), ()), (None,)))
        new = partial(build_step_table, stochasticity=ddim(1.0 if order == 1 else 0.0), order=order)
        walked = sample(
            denoiser,
            model.schedule,
            encoded,
            denoiser.constrain(canvas),
            make_key(seed, torch.arange(4)),
            strided_times(steps, num_timesteps=2000),
            build_step_table=graphs.build_step_table(new, order) if graphs else new,
            prepare=graphs.prepare if graphs else eager,
            last_only=last_only,
        )
        return [(s.time, s.z.clone(), s.estimate.z0.clone(), s.estimate.hidden.clone()) for s in walked]


@pytest.mark.parametrize("order", [1, 2])
def test_one_recording_serves_walks_of_any_length_and_any_canvas_of_its_shape(
    small: Make, graph_cache: GraphCache, order: int
) -> None:
    model = small()
    for steps, seed in ((3, 0), (40, 1), (5, 2), (4, 3)):  # 40 steps need noise more than once
        plain = states(model, None, steps=steps, seed=seed, order=order)
        again = states(model, graph_cache, steps=steps, seed=seed, order=order)
        assert len(plain) == len(again) == steps
        for a, b in zip(plain, again, strict=True):
            assert a[0] == b[0]
            assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(a[1:], b[1:], strict=True))
    kinds = [name[0] for name in graph_cache.graphs]  # type: ignore[index]
    assert kinds.count("walk") == 2  # the plain denoiser's and the clamped one's
    assert kinds.count("read") == 2


@pytest.mark.parametrize("order", [1, 2])  # the first has fresh noise at each step
@pytest.mark.parametrize(
    "steps", [1, STEPS_PER_GRAPH, STEPS_PER_GRAPH + 2, NOISE_STEPS + STEPS_PER_GRAPH + 3]
)
def test_a_walk_straight_through_ends_where_single_steps_do(
    small: Make, graph_cache: GraphCache, steps: int, order: int
) -> None:
    model = small()
    *_, last = states(model, None, steps=steps, seed=0, order=order)
    for graphs in (None, graph_cache):
        (end,) = states(model, graphs, steps=steps, seed=0, order=order, last_only=True)
        assert end[0] == last[0]
        assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(end[1:], last[1:], strict=True))


@pytest.mark.parametrize("ahead", [1, STEPS_PER_GRAPH - 1, STEPS_PER_GRAPH + 2])
def test_a_walk_straight_through_never_leaps_beyond_the_noise_that_was_drawn(
    small: Make, graph_cache: GraphCache, monkeypatch: pytest.MonkeyPatch, noise_steps: int
) -> None:
    """Wide canvases have room for the noise of few steps; their number need not be one of leaps."""
    model, steps = small(), 2 * STEPS_PER_GRAPH + 4
    *_, last = states(model, None, steps=steps, seed=0, order=1)
    monkeypatch.setattr(captured, "NOISE_STEPS", noise_steps)
    (end,) = states(model, graph_cache, steps=steps, seed=0, order=1, last_only=True)
    assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(end[1:], last[1:], strict=True))


def test_a_walk_straight_through_replays_few_graphs(
    small: Make, graph_cache: GraphCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Counted(Replayed):
        def __call__(self) -> Any:
            calls.append(self.function.__name__)
            return super().__call__()

    monkeypatch.setattr(captured, "Graph", Counted)
    states(small(), graph_cache, steps=2 * STEPS_PER_GRAPH + 1, seed=0, order=1, last_only=True)
    assert [name for name in calls if name in ("_go", "_leap")] == ["_leap", "_leap", "_go"]


def test_other_weights_and_other_shapes_are_recorded_anew(small: Make, graph_cache: GraphCache) -> None:
    one, other = small(), small()
    for model in (one, other, one):
        states(model, graph_cache, steps=2, seed=0, order=1)
    assert len(graph_cache.graphs) == 4
    table = one.denoiser.embedding.weight
    table.data = table.data.clone()  # the weights are elsewhere now
    states(one, graph_cache, steps=2, seed=0, order=1)
    assert len(graph_cache.graphs) == 6


def test_recordings_that_were_not_used_for_long_are_forgotten(
    small: Make, graph_cache: GraphCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "KEPT", 2)
    for _ in range(3):
        states(small(), graph_cache, steps=2, seed=0, order=1)
    assert len(graph_cache.graphs) == 2


@pytest.mark.parametrize("name", ["transformer", "gru"])
@pytest.mark.parametrize("how", [{"beam": 1}, {"beam": 4}, {"beam": 4, "diverse_groups": 2}, {"samples": 3}])
def test_a_recorded_page_is_written_like_a_plain_one(
    name: str,
    how: dict[str, Any],
    graph_cache: GraphCache,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model = recipe.build(recipe.preset("tiny"), tokenizer).eval()
    plain = [model.generate(TEXTS, batch=batch, seed=batch, **how) for batch in (2, 3, 2)]
    monkeypatch.setattr(model, "recorded", lambda: graph_cache)
    again = [model.generate(TEXTS, batch=batch, seed=batch, **how) for batch in (2, 3, 2)]
    for a, b in zip(plain, again, strict=True):
        assert a.candidates == b.candidates
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    assert any(name[0] == "page" for name in graph_cache.graphs)  # type: ignore[index]


@pytest.mark.parametrize("name", ["difformer", "seqdiffuseq", "diffuseq", "ar-diffusion", "diffusion-lm"])
def test_a_recorded_generation_writes_the_plain_texts(
    name: str, graph_cache: GraphCache, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model = recipe.build(recipe.resolve(recipe.preset("tiny"), tokenizer), tokenizer).eval()
    how = {"steps": 3, "noise_beam": 2, "stop_early": 1}
    calls: list[Any] = [{"seed": 1}, {"seed": 2}, {"seed": 1, "prefix": "19"}]
    plain = [model.generate(TEXTS, batch=2, **how, **call) for call in calls]
    monkeypatch.setattr(model, "recorded", lambda: graph_cache)
    again = [model.generate(TEXTS, batch=2, **how, **call) for call in calls]
    for a, b in zip(plain, again, strict=True):
        assert a.candidates == b.candidates
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    kinds = {name[0] for name in graph_cache.graphs}  # type: ignore[index]
    assert kinds >= ({"walk", "read", "lengths"} if isinstance(model, LengthPredictingModel) else {"walk"})


def test_a_recorded_judge_says_what_the_plain_one_says(
    small: Make, graph_cache: GraphCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small(noise_factor=3.0)
    how: dict[str, Any] = {"select": "weighed", "steps": 3, "stop_early": 0, "length_beam": 4, "batch": 2}
    plain = [model.generate(TEXTS, seed=seed, **how) for seed in (0, 1)]
    monkeypatch.setattr(model, "recorded", lambda: graph_cache)
    again = [model.generate(TEXTS, seed=seed, **how) for seed in (0, 1)]
    for a, b in zip(plain, again, strict=True):
        assert a.texts == b.texts
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    assert any(name[0] == "noised" for name in graph_cache.graphs)  # type: ignore[index]


def test_a_path_is_laid_once_until_the_schedule_or_the_settings_change(
    small: Make, graph_cache: GraphCache
) -> None:
    model = small()
    schedule, times = (
        AdaptiveSchedule(SCHEDULES["sqrt"](40), 4, bin_size=8),
        strided_times(3, num_timesteps=40),
    )
    made: list[int] = []

    def count(*given: Any) -> StepTable:
        made.append(len(made))
        return build_step_table(*given)

    def laid(*what: int, length: int = 4) -> StepTable:
        return graph_cache.build_step_table(count, *what)(
            model.denoiser, schedule, times, length, torch.device("cpu")
        )

    first = laid(1)
    assert laid(1) is first
    assert len(made) == 1
    laid(2), laid(1, length=3)
    assert len(made) == 3
    schedule.alpha_bars[:-1] *= 0.9
    assert not torch.equal(laid(1).table, first.table)
    assert len(made) == 4


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_path_is_laid_anew_once_the_weights_have_changed_where_they_are(
    small: Make, graph_cache: GraphCache, wrapped: bool
) -> None:
    """As they do between two validations of a run; the ticks of the clocks are made of them."""
    model = small()
    denoiser = ClampedDenoiser(model.denoiser) if wrapped else model.denoiser
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def laid() -> StepTable:
        times = strided_times(3, num_timesteps=40)
        return graph_cache.build_step_table(build_step_table)(
            denoiser, model.schedule, times, 4, torch.device("cpu")
        )

    before = laid()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    after = laid()
    assert before.time_embedding is not None
    assert after.time_embedding is not None
    assert not torch.allclose(after.time_embedding, before.time_embedding)
    fresh = denoiser.embed_timestep(after.table[:, 2])
    assert fresh is not None
    assert torch.equal(after.time_embedding, fresh)
    assert laid() is after


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [name for name, recipe in recipes().items() if recipe.fit is None])
def test_a_gpu_writes_the_same_texts_with_and_without_recording(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    config = recipe.resolve(recipe.preset("tiny"), tokenizer)
    model = recipe.build(config, tokenizer).to("cuda").eval()
    few = {"steps": 6, "noise_beam": 2, "stop_early": 1, "beam": 3}
    fast: dict[str, Any] = {
        name: value for name, value in few.items() if hasattr(model.generation_config, name)
    }
    recorded = model.generate(TEXTS, batch=2, **fast)
    model.graphs = None
    plain = model.generate(TEXTS, batch=2, **fast)
    assert recorded.candidates == plain.candidates
    assert torch.allclose(torch.tensor(recorded.scores), torch.tensor(plain.scores), atol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_judges_alike_with_and_without_recording(small: Make) -> None:
    model = small(noise_factor=3.0).to("cuda")
    how: dict[str, Any] = {"select": "weighed", "steps": 3, "stop_early": 0, "length_beam": 4, "batch": 2}
    recorded = [model.generate(TEXTS, seed=seed, **how) for seed in (0, 1, 0)]
    model.graphs = None
    for made, seed in zip(recorded, (0, 1, 0), strict=True):
        plain = model.generate(TEXTS, seed=seed, **how)
        assert made.texts == plain.texts
        assert torch.allclose(torch.tensor(made.scores), torch.tensor(plain.scores), atol=1e-2)
