"""A recorded step is the plain one: the same texts, for any number of steps and any walk after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from noise2text.acceleration import cuda_graphs as captured
from noise2text.acceleration.cuda_graphs import AHEAD, LEAP, Captures, batch_size, width
from noise2text.core.random import key
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import Rows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.adaptive_schedule import Adaptive
from noise2text.diffusion.sampler import Path, ddim, eager, lay, strided, walk
from noise2text.diffusion.schedules import SCHEDULES
from noise2text.generation import autoregressive
from noise2text.models import LengthDiffusion
from noise2text.models.registry import find_recipe, recipes
from noise2text.nn.denoiser import Clamped

from ..conftest import Make

TEXTS = ["sunday, 7 april 1957", "12. mai 2001", "3 enero 1999", "den 1. mars 1984", "9 july 2020"]


def test_sizes_are_few_and_large_enough() -> None:
    assert [batch_size(n) for n in (1, 2, 3, 5, 64, 65)] == [1, 2, 4, 8, 64, 128]
    widths = {width(n, 128) for n in range(1, 129)}
    assert len(widths) < 30
    assert all(n <= width(n, 128) <= n + max(3, n // 4) for n in range(1, 129))
    assert width(30, 30) == 30


class Replayed:
    """What a recorded graph does, without a GPU: the same function on the same places again."""

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        self.function = function
        for _ in range(captured.WARM):
            self.output = function()

    def __call__(self) -> Any:
        self.output = self.function()
        return self.output


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Captures:
    monkeypatch.setattr(captured, "Graph", Replayed)
    monkeypatch.setattr(autoregressive, "Graph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    return Captures()


def states(
    system: LengthDiffusion,
    captures: Captures | None,
    *,
    steps: int,
    seed: int,
    order: int,
    through: bool = False,
) -> Any:
    with torch.inference_mode():
        source = system.layout.source(Rows.of([[8, 9, 10], [13, 14 + seed, 15]]))
        denoiser = Clamped(system.denoiser) if seed == 3 else system.denoiser
        memory = captures.read(denoiser, source) if captures else denoiser.read(source)
        canvas = system.layout.prompt(source, torch.tensor([[4, 3], [2, 4]]), width=4)
        canvas = system.layout.give(canvas, Template(((9 + seed,), ()), (None,)))
        new = partial(lay, fresh=ddim(1.0 if order == 1 else 0.0), order=order)
        walked = walk(
            denoiser,
            system.schedule,
            memory,
            denoiser.hold(canvas),
            key(seed, torch.arange(4)),
            strided(steps, resolution=2000),
            lay=captures.lay(new, order) if captures else new,
            prepare=captures.prepare if captures else eager,
            through=through,
        )
        return [(s.time, s.z.clone(), s.estimate.mean.clone(), s.estimate.hidden.clone()) for s in walked]


@pytest.mark.parametrize("order", [1, 2])
def test_one_recording_serves_walks_of_any_length_and_any_canvas_of_its_shape(
    small: Make, replays: Captures, order: int
) -> None:
    system = small()
    for steps, seed in ((3, 0), (40, 1), (5, 2), (4, 3)):  # 40 steps need noise more than once
        plain = states(system, None, steps=steps, seed=seed, order=order)
        again = states(system, replays, steps=steps, seed=seed, order=order)
        assert len(plain) == len(again) == steps
        for a, b in zip(plain, again, strict=True):
            assert a[0] == b[0]
            assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(a[1:], b[1:], strict=True))
    kinds = [name[0] for name in replays.graphs]  # type: ignore[index]
    assert kinds.count("walk") == 2  # the plain denoiser's and the clamped one's
    assert kinds.count("read") == 2


@pytest.mark.parametrize("order", [1, 2])  # the first has fresh noise at each step
@pytest.mark.parametrize("steps", [1, LEAP, LEAP + 2, AHEAD + LEAP + 3])
def test_a_walk_straight_through_ends_where_single_steps_do(
    small: Make, replays: Captures, steps: int, order: int
) -> None:
    system = small()
    *_, last = states(system, None, steps=steps, seed=0, order=order)
    for captures in (None, replays):
        (end,) = states(system, captures, steps=steps, seed=0, order=order, through=True)
        assert end[0] == last[0]
        assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(end[1:], last[1:], strict=True))


@pytest.mark.parametrize("ahead", [1, LEAP - 1, LEAP + 2])
def test_a_walk_straight_through_never_leaps_beyond_the_noise_that_was_drawn(
    small: Make, replays: Captures, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Wide canvases have room for the noise of few steps; their number need not be one of leaps."""
    system, steps = small(), 2 * LEAP + 4
    *_, last = states(system, None, steps=steps, seed=0, order=1)
    monkeypatch.setattr(captured, "AHEAD", ahead)
    (end,) = states(system, replays, steps=steps, seed=0, order=1, through=True)
    assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(end[1:], last[1:], strict=True))


def test_a_walk_straight_through_replays_few_graphs(
    small: Make, replays: Captures, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Counted(Replayed):
        def __call__(self) -> Any:
            calls.append(self.function.__name__)
            return super().__call__()

    monkeypatch.setattr(captured, "Graph", Counted)
    states(small(), replays, steps=2 * LEAP + 1, seed=0, order=1, through=True)
    assert [name for name in calls if name in ("_go", "_leap")] == ["_leap", "_leap", "_go"]


def test_other_weights_and_other_shapes_are_recorded_anew(small: Make, replays: Captures) -> None:
    one, other = small(), small()
    for system in (one, other, one):
        states(system, replays, steps=2, seed=0, order=1)
    assert len(replays.graphs) == 4
    table = one.denoiser.space.table
    table.data = table.data.clone()  # the weights are elsewhere now
    states(one, replays, steps=2, seed=0, order=1)
    assert len(replays.graphs) == 6


def test_recordings_that_were_not_used_for_long_are_forgotten(
    small: Make, replays: Captures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "KEPT", 2)
    for _ in range(3):
        states(small(), replays, steps=2, seed=0, order=1)
    assert len(replays.graphs) == 2


@pytest.mark.parametrize("name", ["transformer", "gru"])
@pytest.mark.parametrize("how", [{"beam": 1}, {"beam": 4}, {"beam": 4, "diverse_groups": 2}, {"samples": 3}])
def test_a_recorded_page_is_written_like_a_plain_one(
    name: str, how: dict[str, Any], replays: Captures, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    system = recipe.build(recipe.settings("tiny"), tokenizer).eval()
    plain = [system.generate(TEXTS, batch=batch, seed=batch, **how) for batch in (2, 3, 2)]
    monkeypatch.setattr(system, "recorded", lambda: replays)
    again = [system.generate(TEXTS, batch=batch, seed=batch, **how) for batch in (2, 3, 2)]
    for a, b in zip(plain, again, strict=True):
        assert a.candidates == b.candidates
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    assert any(name[0] == "page" for name in replays.graphs)  # type: ignore[index]


@pytest.mark.parametrize("name", ["difformer", "seqdiffuseq", "diffuseq", "ar-diffusion", "diffusion-lm"])
def test_a_recorded_generation_writes_the_plain_texts(
    name: str, replays: Captures, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    system = recipe.build(recipe.resolve(recipe.settings("tiny"), tokenizer), tokenizer).eval()
    how = {"steps": 3, "noise_beam": 2, "stop_early": 1}
    calls: list[Any] = [{"seed": 1}, {"seed": 2}, {"seed": 1, "prefix": "19"}]
    plain = [system.generate(TEXTS, batch=2, **how, **call) for call in calls]
    monkeypatch.setattr(system, "recorded", lambda: replays)
    again = [system.generate(TEXTS, batch=2, **how, **call) for call in calls]
    for a, b in zip(plain, again, strict=True):
        assert a.candidates == b.candidates
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    kinds = {name[0] for name in replays.graphs}  # type: ignore[index]
    assert kinds >= ({"walk", "read", "lengths"} if isinstance(system, LengthDiffusion) else {"walk"})


def test_a_recorded_judge_says_what_the_plain_one_says(
    small: Make, replays: Captures, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = small(factor=3.0)
    how: dict[str, Any] = {"select": "weighed", "steps": 3, "stop_early": 0, "length_beam": 4, "batch": 2}
    plain = [system.generate(TEXTS, seed=seed, **how) for seed in (0, 1)]
    monkeypatch.setattr(system, "recorded", lambda: replays)
    again = [system.generate(TEXTS, seed=seed, **how) for seed in (0, 1)]
    for a, b in zip(plain, again, strict=True):
        assert a.texts == b.texts
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    assert any(name[0] == "noised" for name in replays.graphs)  # type: ignore[index]


def test_a_path_is_laid_once_until_the_schedule_or_the_settings_change(
    small: Make, replays: Captures
) -> None:
    system = small()
    schedule, times = Adaptive(SCHEDULES["sqrt"](40), 4, stride=8), strided(3, resolution=40)
    made: list[int] = []

    def count(*given: Any) -> Path:
        made.append(len(made))
        return lay(*given)

    def laid(*what: int, length: int = 4) -> Path:
        return replays.lay(count, *what)(system.denoiser, schedule, times, length, torch.device("cpu"))

    first = laid(1)
    assert laid(1) is first
    assert len(made) == 1
    laid(2), laid(1, length=3)
    assert len(made) == 3
    schedule.table[:-1] *= 0.9
    assert not torch.equal(laid(1).table, first.table)
    assert len(made) == 4


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_path_is_laid_anew_once_the_weights_have_changed_where_they_are(
    small: Make, replays: Captures, wrapped: bool
) -> None:
    """As they do between two validations of a run; the ticks of the clocks are made of them."""
    system = small()
    denoiser = Clamped(system.denoiser) if wrapped else system.denoiser
    optimiser = torch.optim.AdamW(system.parameters(), lr=0.1)

    def laid() -> Path:
        times = strided(3, resolution=40)
        return replays.lay(lay)(denoiser, system.schedule, times, 4, torch.device("cpu"))

    before = laid()
    for parameter in system.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    after = laid()
    assert before.ticks is not None
    assert after.ticks is not None
    assert not torch.allclose(after.ticks, before.ticks)
    fresh = denoiser.ticks(after.table[:, 2])
    assert fresh is not None
    assert torch.equal(after.ticks, fresh)
    assert laid() is after


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [name for name, recipe in recipes().items() if recipe.fit is None])
def test_a_gpu_writes_the_same_texts_with_and_without_recording(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    settings = recipe.resolve(recipe.settings("tiny"), tokenizer)
    system = recipe.build(settings, tokenizer).to("cuda").eval()
    few = {"steps": 6, "noise_beam": 2, "stop_early": 1, "beam": 3}
    fast: dict[str, Any] = {name: value for name, value in few.items() if hasattr(system.how, name)}
    recorded = system.generate(TEXTS, batch=2, **fast)
    system.captures = None
    plain = system.generate(TEXTS, batch=2, **fast)
    assert recorded.candidates == plain.candidates
    assert torch.allclose(torch.tensor(recorded.scores), torch.tensor(plain.scores), atol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_judges_alike_with_and_without_recording(small: Make) -> None:
    system = small(factor=3.0).to("cuda")
    how: dict[str, Any] = {"select": "weighed", "steps": 3, "stop_early": 0, "length_beam": 4, "batch": 2}
    recorded = [system.generate(TEXTS, seed=seed, **how) for seed in (0, 1, 0)]
    system.captures = None
    for made, seed in zip(recorded, (0, 1, 0), strict=True):
        plain = system.generate(TEXTS, seed=seed, **how)
        assert made.texts == plain.texts
        assert torch.allclose(torch.tensor(made.scores), torch.tensor(plain.scores), atol=1e-2)
