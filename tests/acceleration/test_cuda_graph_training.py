"""A captured pass equals the eager one: the same losses and weights, whatever came before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from noise2text.acceleration import cuda_graph_training
from noise2text.acceleration.cuda_graph_training import CudaGraphTrainingPass
from noise2text.acceleration.cuda_graphs import WARMUP_RUNS
from noise2text.data.layouts.base import Canvas
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.losses import LossTerm, TokenLoss
from noise2text.training.distributed import SingleProcess
from noise2text.training.loop import EagerPass, TrainingPass
from noise2text.training.objective import Objective
from noise2text.training.process_group import ProcessGroup

from ..training.small_training import GRAPHABLE_RECIPES, build_small, make_batches, train_small


class Replayed:
    """Does what a graph does, without a GPU: runs the same function on the same memory again."""

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        self.function = function
        for _ in range(WARMUP_RUNS + 1):
            function()

    def __call__(self) -> Any:
        return self.function()


class Taped(TorchDispatchMode):
    """The same more closely: repeats the same operations on the same memory, with no Python in between.

    It cannot repeat the computation of keys, which numpy does on a CPU.
    """

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        super().__init__()
        for _ in range(WARMUP_RUNS):
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


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph_training, "CudaGraph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph_training, "CudaGraph", Taped)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)


def eager(objective: Objective) -> EagerPass:
    optimizer = torch.optim.SGD(objective.parameters(), lr=0.05)
    return EagerPass(SingleProcess(objective, objective, ProcessGroup()), optimizer, nullcontext())


def captured(objective: Objective) -> CudaGraphTrainingPass:
    return CudaGraphTrainingPass(eager(objective), objective, list(objective.parameters()))


@pytest.mark.parametrize("name", GRAPHABLE_RECIPES)
def test_captured_passes_train_as_eager_ones(name: str, tokenizer: Tokenizer, replayed: None) -> None:
    losses, weights = train_small(name, tokenizer, "cpu", captured=True)
    expected, others = train_small(name, tokenizer, "cpu")
    assert losses == pytest.approx(expected, rel=1e-5)
    for key, value in others.items():
        assert torch.allclose(weights[key].double(), value.double(), atol=1e-5), key


def test_capturing_leaves_dropout_as_it_was(tokenizer: Tokenizer, replayed: None) -> None:
    """Else a step would depend on which shapes came before, and a resumed run would end elsewhere."""
    losses, _ = train_small("difformer", tokenizer, "cpu", captured=True, dropout=0.3)
    expected, _ = train_small("difformer", tokenizer, "cpu", dropout=0.3)
    assert losses == pytest.approx(expected, rel=1e-5)


class Halves(Objective):
    """Learns one of two tables, or both, as the step's flag says."""

    def __init__(self) -> None:
        super().__init__([LossTerm("error"), LossTerm("size", None)])
        torch.manual_seed(0)
        self.tables = nn.ParameterList([nn.Parameter(torch.randn(9)) for _ in range(3)])  # the last is unused

    def step_flags(self, step_key: Tensor) -> int:
        return int(step_key) % 3

    def draw(self, canvas: Canvas, keys: Tensor, step_key: Tensor) -> int:
        return self.step_flags(step_key)

    def forward(self, canvas: Canvas, draws: int) -> dict[str, TokenLoss]:
        chosen = [self.tables[0], self.tables[1], self.tables[0] * self.tables[1]][draws]
        read = chosen[canvas.tokens]
        values = {"error": (read - canvas.tokens).square(), "size": read.detach().square()}
        return {
            name: TokenLoss(values[name], canvas.scored) for name in values if name not in self.skipped_terms
        }


def _train_halves(
    make: Callable[[Objective], TrainingPass],
    flags: Sequence[Sequence[int]],
    *,
    spoilt: bool = False,
) -> tuple[list[list[Tensor]], Any]:
    """The gradients after each step, whose micro-batches have these flags; and the pass that was used."""
    objective, gradients = Halves(), []
    parameters = list(objective.parameters())
    backward = make(objective)
    for step, step_flags in enumerate(flags):
        backward.zero_grad()
        for number, flag in enumerate(step_flags):
            rows = RaggedRows.from_lists([[step % 9, number, 4], [flag, 5]])
            canvas = SplitLayout(8).make_canvas(rows, rows, shape=(3, 3))
            counts = dict.fromkeys(objective.terms, torch.tensor(3.0 + number))
            backward(canvas, torch.arange(2), torch.tensor(flag), counts)
        gradients.append([torch.zeros(9) if p.grad is None else p.grad.clone() for p in parameters])
        for parameter in parameters if spoilt else ():
            if parameter.grad is not None:
                parameter.grad.fill_(torch.nan)
    assert parameters[-1].grad is None  # a weight without gradients is not decayed, either
    return gradients, backward


def test_a_step_overwrites_the_gradients_that_were_there(taped: None) -> None:
    """Equal shapes, different flags: also gradients that did not exist when a graph was captured."""
    flags = [[0], [0, 0], [1], [0], [1, 0, 1], [2], [0, 1, 2], [1], [0, 2]]
    found, cuda_graph_pass = _train_halves(captured, flags, spoilt=True)
    expected, _ = _train_halves(eager, flags)
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert torch.allclose(one, other, atol=1e-6)
    assert len(cuda_graph_pass.graphs) == 6  # three flags, for a first micro-batch and for a later one


def _canvas() -> Canvas:
    rows = RaggedRows.from_lists([[1, 2]])
    return SplitLayout(8).make_canvas(rows, rows)


def test_gradients_keep_their_places(taped: None) -> None:
    """The optimiser and every graph know them."""
    objective, canvas, places = Halves(), _canvas(), []
    backward = captured(objective)
    for flags in ([2], [2, 2], [0], [2, 1]):
        backward.zero_grad()
        for flag in flags:
            backward(canvas, torch.arange(1), torch.tensor(flag), objective.counts(canvas))
        places.append([p.grad.data_ptr() for p in objective.parameters() if p.grad is not None])
    assert all(place == places[0] for place in places)


def test_a_graph_has_the_terms_that_are_logged(taped: None) -> None:
    objective, canvas = Halves(), _canvas()
    backward = captured(objective)
    for is_logged in (False, True, True, False, True):
        objective.terms_logged = is_logged
        backward.zero_grad()
        *_, means = backward(canvas, torch.arange(1), torch.tensor(0), objective.counts(canvas))
        assert means.keys() == ({"error", "size"} if is_logged else {"error"})
        gradient = objective.tables[0].grad
        assert gradient is not None
        error = objective.tables[0].detach() - torch.arange(9)  # half the gradient of its square, of two
        assert torch.allclose(gradient, error * torch.tensor([0, 1, 1, 0, 0, 0, 0, 0, 0]), atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_are_the_same_whenever_they_were_captured(tokenizer: Tokenizer) -> None:
    """Graphs that were captured in a run before give the dropout of graphs that are captured in this one."""
    model, objective = build_small("difformer", tokenizer, "cuda", 0.3)
    batches, keys = make_batches(model, "cuda"), torch.arange(4, device="cuda")
    backward = captured(objective)
    objective.train()
    found = []
    for _ in range(2):  # the first captures
        torch.manual_seed(1)
        backward.zero_grad()
        canvas = batches(2)[0]
        *_, means = backward(canvas, keys, torch.tensor(3), objective.counts(canvas))
        found.append({name: float(value) for name, value in means.items()})
    assert found[0] == found[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", GRAPHABLE_RECIPES)
def test_graphs_train_as_eager_passes_on_a_gpu(name: str, tokenizer: Tokenizer) -> None:
    losses, weights = train_small(name, tokenizer, "cuda", captured=True)
    expected, others = train_small(name, tokenizer, "cuda")
    assert losses == pytest.approx(expected, rel=1e-3)
    for key, value in others.items():
        assert torch.allclose(weights[key].double(), value.double(), atol=1e-3), key
