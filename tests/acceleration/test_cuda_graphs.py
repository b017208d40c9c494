"""Captured steps compute what eager ones do, for any number of steps and any input of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import noise2text
from noise2text.acceleration import cuda_graphs
from noise2text.acceleration.cuda_graphs import (
    MAX_GRAPHS,
    NOISE_STEPS,
    STEPS_PER_GRAPH,
    CudaGraphExecutor,
    round_up_batch,
    round_up_length,
)
from noise2text.core.random import make_key
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.adaptive_schedule import AdaptiveSchedule
from noise2text.diffusion.sampler import ReverseProcess, SampledStep
from noise2text.diffusion.schedules import SCHEDULES, Schedule
from noise2text.diffusion.solvers import ANCESTRAL, Ddim, Solver, StepColumn, StepTable, strided_times
from noise2text.generation.executor import EAGER, Executor
from noise2text.models import LengthPredictingModel
from noise2text.models.registry import find_recipe, list_recipes
from noise2text.models.requests import GenerationRequest
from noise2text.nn.denoiser import ClampedDenoiser, Constraint, Denoiser, EncoderOutput, Estimate

from ..conftest import Make

TEXTS = ["sunday, 7 april 1957", "12. mai 2001", "3 enero 1999", "den 1. mars 1984", "9 july 2020"]


def test_sizes_are_few_and_large_enough() -> None:
    assert [round_up_batch(n) for n in (1, 2, 3, 5, 64, 65)] == [1, 2, 4, 8, 64, 128]
    widths = {round_up_length(n, 128) for n in range(1, 129)}
    assert len(widths) < 30
    assert all(n <= round_up_length(n, 128) <= n + max(3, n // 4) for n in range(1, 129))
    assert round_up_length(30, 30) == 30


class Replayed:
    """What a CUDA graph does, without a GPU: it runs the same function on the same tensors again."""

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        self.function = function
        for _ in range(cuda_graphs.WARMUP_RUNS):
            self.output = function()

    def __call__(self) -> Any:
        self.output = self.function()
        return self.output


@pytest.fixture
def graph_executor(monkeypatch: pytest.MonkeyPatch) -> CudaGraphExecutor:
    monkeypatch.setattr(cuda_graphs, "CudaGraph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    return CudaGraphExecutor()


Step = tuple[float, torch.Tensor, torch.Tensor, torch.Tensor]


def sample_with(
    model: LengthPredictingModel,
    executor: Executor,
    *,
    steps: int,
    seed: int,
    order: int,
    show_steps: bool = True,
) -> tuple[Estimate, list[Step]]:
    """What the executor samples, and copies of its steps; only without these it may take several at once."""
    shown: list[Step] = []

    def show(step: SampledStep) -> None:
        estimate = step.estimate
        shown.append((step.time, step.z.clone(), estimate.z0.clone(), estimate.hidden.clone()))

    with torch.inference_mode():
        source = model.layout.make_source(RaggedRows.from_lists([[8, 9, 10], [13, 14 + seed, 15]]))
        denoiser = ClampedDenoiser(model.denoiser) if seed == 3 else model.denoiser
        encoded = executor.encode(denoiser, source)
        canvas = model.layout.make_empty_canvas(source, torch.tensor([[4, 3], [2, 4]]), width=4)
        canvas = model.layout.apply_template(canvas, Template(((9 + seed,), ()), (None,)))
        process = ReverseProcess(
            denoiser,
            model.schedule,
            encoded,
            denoiser.constrain(canvas),
            make_key(seed, torch.arange(4)),
            strided_times(steps, num_timesteps=2000),
            solver=Solver(Ddim(1.0 if order == 1 else 0.0), order),
        )
        estimate = executor.sample(process, show if show_steps else None)
    return estimate, shown


def assert_close(estimate: Estimate, other: Estimate) -> None:
    assert torch.allclose(estimate.z0, other.z0, atol=1e-4)
    assert torch.allclose(estimate.hidden, other.hidden, atol=1e-4)


@pytest.mark.parametrize("order", [1, 2])
def test_one_capture_serves_any_number_of_steps_and_any_canvas_of_its_shape(
    small: Make, graph_executor: CudaGraphExecutor, order: int
) -> None:
    model = small()
    for steps, seed in ((3, 0), (40, 1), (5, 2), (4, 3)):  # 40 steps need noise more than once
        expected, eager_steps = sample_with(model, EAGER, steps=steps, seed=seed, order=order)
        estimate, captured_steps = sample_with(model, graph_executor, steps=steps, seed=seed, order=order)
        assert_close(estimate, expected)
        assert len(eager_steps) == len(captured_steps) == steps
        for a, b in zip(eager_steps, captured_steps, strict=True):
            assert a[0] == b[0]
            assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(a[1:], b[1:], strict=True))
    kinds = [name[0] for name in graph_executor.graphs]  # type: ignore[index]
    assert kinds.count("sample") == 2  # the plain denoiser's and the clamped one's
    assert kinds.count("encode") == 2


@pytest.mark.parametrize("order", [1, 2])  # the first has fresh noise at each step
@pytest.mark.parametrize(
    "steps", [1, STEPS_PER_GRAPH, STEPS_PER_GRAPH + 2, NOISE_STEPS + STEPS_PER_GRAPH + 3]
)
def test_several_steps_at_once_end_where_single_steps_do(
    small: Make, graph_executor: CudaGraphExecutor, steps: int, order: int
) -> None:
    model = small()
    expected, _ = sample_with(model, EAGER, steps=steps, seed=0, order=order)
    for show_steps in (False, True):
        estimate, _ = sample_with(
            model, graph_executor, steps=steps, seed=0, order=order, show_steps=show_steps
        )
        assert_close(estimate, expected)


@pytest.mark.parametrize("noise_steps", [1, STEPS_PER_GRAPH - 1, STEPS_PER_GRAPH + 2])
def test_several_steps_at_once_never_need_more_noise_than_was_drawn(
    small: Make, graph_executor: CudaGraphExecutor, monkeypatch: pytest.MonkeyPatch, noise_steps: int
) -> None:
    """Wide canvases have room for the noise of few steps; a graph may take more steps."""
    model, steps = small(), 2 * STEPS_PER_GRAPH + 4
    expected, _ = sample_with(model, EAGER, steps=steps, seed=0, order=1)
    monkeypatch.setattr(cuda_graphs, "NOISE_STEPS", noise_steps)
    estimate, _ = sample_with(model, graph_executor, steps=steps, seed=0, order=1, show_steps=False)
    assert_close(estimate, expected)


def test_several_steps_at_once_replay_few_graphs(
    small: Make, graph_executor: CudaGraphExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Counted(Replayed):
        def __call__(self) -> Any:
            calls.append(self.function.__name__)
            return super().__call__()

    monkeypatch.setattr(cuda_graphs, "CudaGraph", Counted)
    sample_with(small(), graph_executor, steps=2 * STEPS_PER_GRAPH + 1, seed=0, order=1, show_steps=False)
    assert [name for name in calls if name in ("_run_step", "_run_steps")] == [
        "_run_steps",
        "_run_steps",
        "_run_step",
    ]


def test_other_weights_and_other_shapes_are_captured_anew(
    small: Make, graph_executor: CudaGraphExecutor
) -> None:
    one, other = small(), small()
    for model in (one, other, one):
        sample_with(model, graph_executor, steps=2, seed=0, order=1)
    assert len(graph_executor.graphs) == 4
    table = one.denoiser.embedding.weight
    table.data = table.data.clone()  # the weights are elsewhere now
    sample_with(one, graph_executor, steps=2, seed=0, order=1)
    assert len(graph_executor.graphs) == 6


def test_captures_that_were_not_used_for_long_are_forgotten(
    small: Make, graph_executor: CudaGraphExecutor
) -> None:
    def captured(models: int) -> int:
        """How many graphs are kept after sampling with so many models more."""
        for _ in range(models):
            sample_with(small(), graph_executor, steps=2, seed=0, order=1)
        return len(graph_executor.graphs)

    assert captured(1) == 2
    assert captured(MAX_GRAPHS // 2) == captured(2) == MAX_GRAPHS


@pytest.mark.parametrize("name", ["transformer", "gru"])
@pytest.mark.parametrize(
    "options", [{"beam": 1}, {"beam": 4}, {"beam": 4, "diverse_groups": 2}, {"samples": 3}]
)
def test_captured_autoregressive_decoding_writes_the_eager_texts(
    name: str,
    options: dict[str, Any],
    graph_executor: CudaGraphExecutor,
    tokenizer: Tokenizer,
) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model = recipe.build(recipe.preset("tiny"), tokenizer).eval()
    plain = [model.generate(TEXTS, batch=batch, seed=batch, **options) for batch in (2, 3, 2)]
    model.use_executor(graph_executor)
    again = [model.generate(TEXTS, batch=batch, seed=batch, **options) for batch in (2, 3, 2)]
    for a, b in zip(plain, again, strict=True):
        assert a.candidates == b.candidates
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    assert any(name[0] == "autoregressive" for name in graph_executor.graphs)  # type: ignore[index]


@pytest.mark.parametrize("name", ["difformer", "seqdiffuseq", "diffuseq", "ar-diffusion", "diffusion-lm"])
def test_captured_sampling_writes_the_eager_texts(
    name: str, graph_executor: CudaGraphExecutor, tokenizer: Tokenizer
) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model = recipe.build(recipe.resolve(recipe.preset("tiny"), tokenizer), tokenizer).eval()
    options = {"steps": 3, "noise_beam": 2, "stop_early": 1}
    calls: list[Any] = [{"seed": 1}, {"seed": 2}, {"seed": 1, "prefix": "19"}]
    plain = [model.generate(TEXTS, batch=2, **options, **call) for call in calls]
    model.use_executor(graph_executor)
    again = [model.generate(TEXTS, batch=2, **options, **call) for call in calls]
    for a, b in zip(plain, again, strict=True):
        assert a.candidates == b.candidates
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    kinds = {name[0] for name in graph_executor.graphs}  # type: ignore[index]
    assert kinds >= (
        {"sample", "encode", "lengths"} if isinstance(model, LengthPredictingModel) else {"sample"}
    )


def test_a_captured_likelihood_is_the_eager_one(small: Make, graph_executor: CudaGraphExecutor) -> None:
    model = small(noise_factor=3.0)
    options: dict[str, Any] = {
        "select": "weighted-mbr",
        "steps": 3,
        "stop_early": 0,
        "length_beam": 4,
        "batch": 2,
    }
    plain = [model.generate(TEXTS, seed=seed, **options) for seed in (0, 1)]
    model.use_executor(graph_executor)
    again = [model.generate(TEXTS, seed=seed, **options) for seed in (0, 1)]
    for a, b in zip(plain, again, strict=True):
        assert a.texts == b.texts
        assert torch.allclose(torch.tensor(a.scores), torch.tensor(b.scores), atol=1e-4)
    assert any(name[0] == "denoising likelihood" for name in graph_executor.graphs)  # type: ignore[index]


def empty_process(denoiser: Denoiser, schedule: Schedule, solver: Solver, *, length: int) -> ReverseProcess:
    """Three steps over one row of this length, with nothing given."""
    mask, keys = torch.zeros(1, length, dtype=torch.bool), make_key(0, torch.arange(1))
    constraint = Constraint(torch.zeros(1, length, denoiser.embedding.dim), mask, mask)
    no_source = EncoderOutput(*(torch.empty(0) for _ in range(4)))
    times = strided_times(3, num_timesteps=40)
    return ReverseProcess(denoiser, schedule, no_source, constraint, keys, times, solver=solver)


def test_a_step_table_is_built_once_until_the_schedule_or_the_solver_changes(
    small: Make, graph_executor: CudaGraphExecutor
) -> None:
    model = small()
    schedule = AdaptiveSchedule(SCHEDULES["sqrt"](40), 4, bin_size=8)

    def table(solver: Solver, length: int = 4) -> StepTable:
        return graph_executor.look_up_step_table(
            empty_process(model.denoiser, schedule, solver, length=length)
        )

    first = table(Solver(Ddim(1.0)))
    others = table(Solver(Ddim(1.0), order=2)), table(Solver(Ddim(0.0))), table(Solver(Ddim(1.0)), length=3)
    assert table(Solver(Ddim(1.0))) is first
    assert len({id(each) for each in (first, *others)}) == 4
    schedule.alpha_bars[:-1] *= 0.9
    assert not torch.equal(table(Solver(Ddim(1.0))).table, first.table)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_step_table_is_built_anew_after_the_weights_were_changed_in_place(
    small: Make, graph_executor: CudaGraphExecutor, wrapped: bool
) -> None:
    """As they are between two validations of a run; the table holds the network's time embedding."""
    model = small()
    denoiser = ClampedDenoiser(model.denoiser) if wrapped else model.denoiser
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def table() -> StepTable:
        return graph_executor.look_up_step_table(empty_process(denoiser, model.schedule, ANCESTRAL, length=4))

    before = table()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    after = table()
    assert before.time_embedding is not None
    assert after.time_embedding is not None
    assert not torch.allclose(after.time_embedding, before.time_embedding)
    time_embedder = denoiser.time_embedder()
    assert time_embedder is not None
    assert torch.equal(after.time_embedding, time_embedder(after.table[:, 0, StepColumn.TIMESTEP]))
    assert table() is after


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [name for name, recipe in list_recipes().items() if recipe.fit is None])
def test_a_gpu_writes_the_same_texts_with_and_without_cuda_graphs(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    config = recipe.resolve(recipe.preset("tiny"), tokenizer)
    model = recipe.build(config, tokenizer).to("cuda").eval()
    few = {"steps": 6, "noise_beam": 2, "stop_early": 1, "beam": 3}
    fast: dict[str, Any] = {
        name: value for name, value in few.items() if hasattr(model.generation_config, name)
    }
    captured = model.generate(TEXTS, batch=2, **fast)
    model.use_cuda_graphs = False
    plain = model.generate(TEXTS, batch=2, **fast)
    assert captured.candidates == plain.candidates
    assert torch.allclose(torch.tensor(captured.scores), torch.tensor(plain.scores), atol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_the_same_likelihoods_with_and_without_cuda_graphs(small: Make) -> None:
    model = small(noise_factor=3.0).to("cuda")
    options: dict[str, Any] = {
        "select": "weighted-mbr",
        "steps": 3,
        "stop_early": 0,
        "length_beam": 4,
        "batch": 2,
    }
    captured = [model.generate(TEXTS, seed=seed, **options) for seed in (0, 1, 0)]
    model.use_cuda_graphs = False
    for made, seed in zip(captured, (0, 1, 0), strict=True):
        plain = model.generate(TEXTS, seed=seed, **options)
        assert made.texts == plain.texts
        assert torch.allclose(torch.tensor(made.scores), torch.tensor(plain.scores), atol=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["difformer", "seqdiffuseq", "diffuseq"])
def test_a_gpu_serves_requests_with_different_steps_together(name: str, tokenizer: Tokenizer) -> None:
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model = recipe.build(recipe.resolve(recipe.preset("tiny"), tokenizer), tokenizer).to("cuda").eval()
    settings: list[dict[str, Any]] = [
        {"steps": 6},
        {"steps": 12, "eta": 0.0, "noise_beam": 3},
        {"steps": 6, "solver": "multistep"},
        {"steps": 9, "sampling_noise_factor": 2.0, "stop_when_sure": 0.2},
    ]
    requests = [GenerationRequest(TEXTS, seed=seed, overrides=each) for seed, each in enumerate(settings)]
    for output, each in zip(model.generate_together(requests), requests, strict=True):
        assert output.candidates == model.generate(TEXTS, seed=each.seed, **each.overrides).candidates


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_threads_that_share_a_model_on_a_gpu_get_the_texts_that_each_gets_alone() -> None:
    texts = ["Guten Morgen!", "Wo ist der Bahnhof?", "Ich habe heute keine Zeit.", "Er ist krank."] * 8
    parts = [texts[start::4] for start in range(4)]
    alone = [noise2text.load("de-en", device="cuda").generate(part).texts for part in parts]
    model = noise2text.load("de-en", device="cuda")
    with ThreadPoolExecutor(4) as pool:
        together = [output.texts for output in pool.map(model.generate, parts)]
    assert together == alone
