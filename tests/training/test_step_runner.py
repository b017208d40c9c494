"""A recorded pass is the plain one: the same losses and weights, whatever the shapes and coins before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from noise2text.acceleration import cuda_graphs as captured
from noise2text.data.layouts.base import Canvas
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import MseLoss, TokenLoss
from noise2text.training import step_runner as passes
from noise2text.training.objective import Objective
from noise2text.training.step_runner import EagerStep, GraphedStep, MicroBatch, StepRunner

from .stepping import GRAPHABLE_RECIPES, build_small, make_batches, train_small


class Replayed:
    """What a recorded graph does, without a GPU: the same function on the same places again."""

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        self.function = function
        for _ in range(captured.WARMUP_RUNS + 1):
            function()

    def __call__(self) -> Any:
        return self.function()


class Taped(TorchDispatchMode):
    """The same more closely: the same operations on the same memory, with no Python in between.

    Keys cannot be taped, which numpy makes on a CPU.
    """

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        super().__init__()
        for _ in range(captured.WARMUP_RUNS):
            function()
        self.tape: list[tuple[Any, Any, Any, Any]] = []
        with self:
            self.output = function()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:  # a view stays one of the same memory
            self.tape.append((func, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def __call__(self) -> Any:
        for func, args, kwargs, result in self.tape:
            for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old is not new:
                    old.detach().copy_(new)
        return self.output


@pytest.mark.parametrize("name", GRAPHABLE_RECIPES)
def test_recorded_passes_train_as_plain_ones(
    name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "CudaGraph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    recorded = GraphedStep(EagerStep(nullcontext))
    losses, weights = train_small(name, tokenizer, recorded, "cpu")
    expected, others = train_small(name, tokenizer, EagerStep(nullcontext), "cpu")
    assert losses == pytest.approx(expected, rel=1e-5)
    for key, value in others.items():
        assert torch.allclose(weights[key].double(), value.double(), atol=1e-5), key
    assert len(recorded.graphs) >= 1


def test_recording_leaves_dropout_as_it_was(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a step would depend on whether its shape was met before, and a resumed run would end elsewhere."""
    monkeypatch.setattr(passes, "CudaGraph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    plain = EagerStep(nullcontext)
    losses, _ = train_small("difformer", tokenizer, GraphedStep(plain), "cpu", dropout=0.3)
    expected, _ = train_small("difformer", tokenizer, plain, "cpu", dropout=0.3)
    assert losses == pytest.approx(expected, rel=1e-5)


class Halves(Objective):
    """Learns one of two tables, or both, as the step's coin says."""

    def __init__(self) -> None:
        super().__init__({"error": MseLoss(), "size": MseLoss()}, {"error": 1.0})
        torch.manual_seed(0)
        self.tables = nn.ParameterList([nn.Parameter(torch.randn(9)) for _ in range(3)])  # the last is unused

    def step_flags(self, step_key: torch.Tensor) -> int:
        return int(step_key) % 3

    def draw(self, canvas: Canvas, keys: torch.Tensor, step_key: torch.Tensor) -> int:
        return self.step_flags(step_key)

    def forward(self, canvas: Canvas, draws: int) -> dict[str, TokenLoss]:
        chosen = [self.tables[0], self.tables[1], self.tables[0] * self.tables[1]][draws]
        read = chosen[canvas.tokens]
        values = {"error": (read - canvas.tokens).square(), "size": read.detach().square()}
        return {
            name: TokenLoss(values[name], canvas.scored) for name in values if name not in self.skipped_terms
        }


def _halves(
    step_runner: StepRunner, flags: Sequence[Sequence[int]], *, spoilt: bool = False
) -> list[list[torch.Tensor]]:
    """The gradients after each step, whose micro-batches fall as these coins do."""
    objective, gradients = Halves(), []
    parameters = list(objective.parameters())
    for step, step_flags in enumerate(flags):
        step_runner.clear_gradients(parameters)
        for number, flag in enumerate(step_flags):
            rows = RaggedRows.from_lists([[step % 9, number, 4], [flag, 5]])
            canvas = SplitLayout(8).make_canvas(rows, rows, shape=(3, 3))
            counts = dict.fromkeys(objective.terms, torch.tensor(3.0 + number))
            step_runner(objective, MicroBatch(canvas, torch.arange(2), torch.tensor(flag), counts))
        gradients.append([torch.zeros(9) if p.grad is None else p.grad.clone() for p in parameters])
        for parameter in parameters if spoilt else ():
            if parameter.grad is not None:
                parameter.grad.fill_(torch.nan)
    assert parameters[-1].grad is None  # what never learns is not decayed, either
    return gradients


def test_a_step_begins_by_writing_whatever_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes alike, coins apart: also over places that a recording did not know when it was made."""
    monkeypatch.setattr(passes, "CudaGraph", Taped)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    flags = [[0], [0, 0], [1], [0], [1, 0, 1], [2], [0, 1, 2], [1], [0, 2]]
    recorded = GraphedStep(EagerStep(nullcontext))
    found, expected = _halves(recorded, flags, spoilt=True), _halves(EagerStep(nullcontext), flags)
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert torch.allclose(one, other, atol=1e-6)
    assert len(recorded.graphs) == 6  # three coins, of a first micro-batch and of a later one


def test_gradients_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the optimiser, and every recording, knows."""
    monkeypatch.setattr(passes, "CudaGraph", Taped)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    objective, step_runner, places = Halves(), GraphedStep(EagerStep(nullcontext)), []
    canvas = SplitLayout(8).make_canvas(RaggedRows.from_lists([[1, 2]]), RaggedRows.from_lists([[1, 2]]))
    for flags in ([2], [2, 2], [0], [2, 1]):
        step_runner.clear_gradients(list(objective.parameters()))
        for flag in flags:
            step_runner(
                objective, MicroBatch(canvas, torch.arange(1), torch.tensor(flag), objective.counts(canvas))
            )
        places.append([p.grad.data_ptr() for p in objective.parameters() if p.grad is not None])
    assert all(place == places[0] for place in places)


def test_a_recording_has_the_terms_that_somebody_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "CudaGraph", Taped)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    objective, step_runner = Halves(), GraphedStep(EagerStep(nullcontext))
    canvas = SplitLayout(8).make_canvas(RaggedRows.from_lists([[1, 2]]), RaggedRows.from_lists([[1, 2]]))
    given = MicroBatch(canvas, torch.arange(1), torch.tensor(0), objective.counts(canvas))
    for is_logged in (False, True, True, False, True):
        objective.log_terms(is_logged)
        step_runner.clear_gradients(list(objective.parameters()))
        means = step_runner(objective, given).means
        assert means.keys() == ({"error", "size"} if is_logged else {"error"})
        gradient = objective.tables[0].grad
        assert gradient is not None
        error = objective.tables[0].detach() - torch.arange(9)  # half the gradient of its square, of two
        assert torch.allclose(gradient, error * torch.tensor([0, 1, 1, 0, 0, 0, 0, 0, 0]), atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_are_the_same_whenever_they_were_recorded(tokenizer: Tokenizer) -> None:
    """Graphs that were recorded in a run before give the dropout of graphs that are recorded in this one."""
    step_runner = GraphedStep(EagerStep(nullcontext))
    model, objective = build_small("difformer", tokenizer, "cuda", 0.3)
    batches, keys = make_batches(model, "cuda"), torch.arange(4, device="cuda")
    objective.train()
    means = []
    for _ in range(2):  # the first records
        torch.manual_seed(1)
        step_runner.clear_gradients(list(model.parameters()))
        canvas = batches(2)[0]
        given = MicroBatch(canvas, keys, torch.tensor(3), objective.counts(canvas))
        means.append({name: float(value) for name, value in step_runner(objective, given).means.items()})
    assert means[0] == means[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", GRAPHABLE_RECIPES)
def test_graphs_train_as_plain_passes(name: str, tokenizer: Tokenizer) -> None:
    losses, weights = train_small(name, tokenizer, GraphedStep(EagerStep(nullcontext)), "cuda")
    expected, others = train_small(name, tokenizer, EagerStep(nullcontext), "cuda")
    assert losses == pytest.approx(expected, rel=1e-3)
    for key, value in others.items():
        assert torch.allclose(weights[key].double(), value.double(), atol=1e-3), key
