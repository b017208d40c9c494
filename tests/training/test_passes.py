"""A recorded pass is the plain one: the same losses and weights, whatever the shapes and coins before it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from noise2text.decoding import captured
from noise2text.diffusion.losses import Mse, Tally
from noise2text.networks import fused
from noise2text.networks.layers import AddNorm, CrossAttention, FeedForward, SelfAttention, Stack
from noise2text.recipes import RECIPES
from noise2text.settings import change
from noise2text.system import System
from noise2text.text.canvas import Canvas, Split
from noise2text.text.rows import Rows
from noise2text.text.tokenizer import Tokenizer
from noise2text.training import passes
from noise2text.training.loop import evaluate_loss, train_steps
from noise2text.training.objective import Objective
from noise2text.training.passes import MicroBatch, Pass, Plain, Recorded

from ..conftest import SMALL

LEARNED = [
    name
    for name, recipe in RECIPES.items()
    if recipe.fit is None and not name.startswith("pretrained") and name not in ("gpvae", "levenshtein")
]
"""Recipes that learn by steps which can be recorded."""

SHAPES = [(6, 5), (9, 8)]
STEPS = 8


class Replayed:
    """What a recorded graph does, without a GPU: the same function on the same places again."""

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        self.function = function
        for _ in range(captured.WARM + 1):
            function()

    def __call__(self) -> Any:
        return self.function()


class Taped(TorchDispatchMode):
    """The same more closely: the same operations on the same memory, with no Python in between.

    Keys cannot be taped, which numpy makes on a CPU.
    """

    def __init__(self, function: Callable[[], Any], *, pool: Any) -> None:
        super().__init__()
        for _ in range(captured.WARM):
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


def _made(name: str, tokenizer: Tokenizer, device: str, dropout: float = 0.0) -> tuple[System, Any]:
    recipe = RECIPES[name]
    known = {field.name for field in dataclasses.fields(recipe.settings("tiny"))}
    small = {key: value for key, value in (SMALL | {"dropout": dropout}).items() if key in known}
    settings = recipe.resolve(change(recipe.settings("tiny"), small, where="a test"), tokenizer)
    torch.manual_seed(0)
    system: System = recipe.build(settings, tokenizer).to(device)
    return system, recipe.objective(settings, system)


def _feed(system: System, device: str) -> Callable[[int], Sequence[Canvas]]:
    """Two micro-batches a step, of a shape that changes from step to step."""

    def feed(step: int) -> Sequence[Canvas]:
        shape = SHAPES[step // 2 % 2]
        rows = [[7 + (row + step) % 5] * (2 + row % 3) for row in range(4)]
        canvas = system.layout.canvas(Rows.of(rows), Rows.of(rows[::-1]), shape=shape)
        return [canvas.to(device), canvas.to(device)]

    return feed


def _trained(
    name: str,
    tokenizer: Tokenizer,
    run: Pass,
    device: str,
    *,
    compiled: bool = False,
    dropout: float = 0.0,
    looked: Callable[[int], bool] = lambda step: step % 3 == 0,
) -> tuple[list[float], dict[str, Any]]:
    system, objective = _made(name, tokenizer, device, dropout)
    if compiled:
        passes.fuse(objective)
    ticks = train_steps(
        objective,
        torch.optim.SGD([p for p in system.parameters() if p.requires_grad], lr=0.05),
        _feed(system, device),
        first=1,
        last=STEPS,
        peak=0.05,
        rate=lambda step: 1.0,
        clip=1.0,
        seed=0,
        run=run,
        looked=looked,
    )
    losses = [float(tick.loss) for tick in ticks]
    state = system.state_dict() | objective.state_dict()
    return losses, {key: value.cpu() for key, value in state.items()}


@pytest.mark.parametrize("name", LEARNED)
def test_recorded_passes_train_as_plain_ones(
    name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "Graph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    recorded = Recorded(Plain(nullcontext))
    losses, weights = _trained(name, tokenizer, recorded, "cpu")
    expected, others = _trained(name, tokenizer, Plain(nullcontext), "cpu")
    assert losses == pytest.approx(expected, rel=1e-5)
    for key, value in others.items():
        assert torch.allclose(weights[key].double(), value.double(), atol=1e-5), key
    assert len(recorded.graphs) >= 1


@pytest.mark.parametrize("name", LEARNED)
def test_who_looks_changes_nothing_that_is_learned(name: str, tokenizer: Tokenizer) -> None:
    """Not a bit of the weights, the times' history or the schedule, with dropout."""

    def trained(looked: Callable[[int], bool]) -> tuple[list[float], dict[str, Any]]:
        return _trained(name, tokenizer, Plain(nullcontext), "cpu", dropout=0.3, looked=looked)

    losses, state = trained(lambda step: True)
    for looked in (lambda step: False, lambda step: step % 3 == 0):
        found, others = trained(looked)
        assert found == losses
        assert all(torch.equal(others[key], value) for key, value in state.items())


def test_recording_leaves_dropout_as_it_was(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a step would depend on whether its shape was met before, and a resumed run would end elsewhere."""
    monkeypatch.setattr(passes, "Graph", Replayed)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    plain = Plain(nullcontext)
    losses, _ = _trained("difformer", tokenizer, Recorded(plain), "cpu", dropout=0.3)
    expected, _ = _trained("difformer", tokenizer, plain, "cpu", dropout=0.3)
    assert losses == pytest.approx(expected, rel=1e-5)


class Halves(Objective):
    """Learns one of two tables, or both, as the step's coin says."""

    def __init__(self) -> None:
        super().__init__({"error": Mse(), "size": Mse()}, {"error": 1.0})
        torch.manual_seed(0)
        self.tables = nn.ParameterList([nn.Parameter(torch.randn(9)) for _ in range(3)])  # the last is unused

    def coin(self, step_key: torch.Tensor) -> int:
        return int(step_key) % 3

    def draw(self, canvas: Canvas, keys: torch.Tensor, step_key: torch.Tensor) -> int:
        return self.coin(step_key)

    def forward(self, canvas: Canvas, draws: int) -> dict[str, Tally]:
        chosen = [self.tables[0], self.tables[1], self.tables[0] * self.tables[1]][draws]
        read = chosen[canvas.tokens]
        values = {"error": (read - canvas.tokens).square(), "size": read.detach().square()}
        return {name: Tally(values[name], canvas.scored) for name in values if name not in self.idle}


def _halves(run: Pass, coins: Sequence[Sequence[int]], *, spoilt: bool = False) -> list[list[torch.Tensor]]:
    """The gradients after each step, whose micro-batches fall as these coins do."""
    objective, gradients = Halves(), []
    parameters = list(objective.parameters())
    for step, fallen in enumerate(coins):
        run.clear(parameters)
        for number, coin in enumerate(fallen):
            rows = Rows.of([[step % 9, number, 4], [coin, 5]])
            canvas = Split(8).canvas(rows, rows, shape=(3, 3))
            counts = dict.fromkeys(objective.terms, torch.tensor(3.0 + number))
            run(objective, MicroBatch(canvas, torch.arange(2), torch.tensor(coin), counts))
        gradients.append([torch.zeros(9) if p.grad is None else p.grad.clone() for p in parameters])
        for parameter in parameters if spoilt else ():
            if parameter.grad is not None:
                parameter.grad.fill_(torch.nan)
    assert parameters[-1].grad is None  # what never learns is not decayed, either
    return gradients


def test_a_step_begins_by_writing_whatever_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes alike, coins apart: also over places that a recording did not know when it was made."""
    monkeypatch.setattr(passes, "Graph", Taped)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    coins = [[0], [0, 0], [1], [0], [1, 0, 1], [2], [0, 1, 2], [1], [0, 2]]
    recorded = Recorded(Plain(nullcontext))
    found, expected = _halves(recorded, coins, spoilt=True), _halves(Plain(nullcontext), coins)
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert torch.allclose(one, other, atol=1e-6)
    assert len(recorded.graphs) == 6  # three coins, of a first micro-batch and of a later one


def test_gradients_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the optimiser, and every recording, knows."""
    monkeypatch.setattr(passes, "Graph", Taped)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    objective, run, places = Halves(), Recorded(Plain(nullcontext)), []
    canvas = Split(8).canvas(Rows.of([[1, 2]]), Rows.of([[1, 2]]))
    for coins in ([2], [2, 2], [0], [2, 1]):
        run.clear(list(objective.parameters()))
        for coin in coins:
            run(objective, MicroBatch(canvas, torch.arange(1), torch.tensor(coin), objective.counts(canvas)))
        places.append([p.grad.data_ptr() for p in objective.parameters() if p.grad is not None])
    assert all(place == places[0] for place in places)


def test_a_recording_has_the_terms_that_somebody_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "Graph", Taped)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    objective, run = Halves(), Recorded(Plain(nullcontext))
    canvas = Split(8).canvas(Rows.of([[1, 2]]), Rows.of([[1, 2]]))
    given = MicroBatch(canvas, torch.arange(1), torch.tensor(0), objective.counts(canvas))
    for looked in (False, True, True, False, True):
        objective.watch(looked)
        run.clear(list(objective.parameters()))
        means = run(objective, given).means
        assert means.keys() == ({"error", "size"} if looked else {"error"})
        gradient = objective.tables[0].grad
        assert gradient is not None
        error = objective.tables[0].detach() - torch.arange(9)  # half the gradient of its square, of two
        assert torch.allclose(gradient, error * torch.tensor([0, 1, 1, 0, 0, 0, 0, 0, 0]), atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_are_the_same_whenever_they_were_recorded(tokenizer: Tokenizer) -> None:
    """Graphs that were recorded in a run before give the dropout of graphs that are recorded in this one."""
    run = Recorded(Plain(nullcontext))
    system, objective = _made("difformer", tokenizer, "cuda", 0.3)
    feed, keys = _feed(system, "cuda"), torch.arange(4, device="cuda")
    objective.train()
    means = []
    for _ in range(2):  # the first records
        torch.manual_seed(1)
        run.clear(list(system.parameters()))
        canvas = feed(2)[0]
        given = MicroBatch(canvas, keys, torch.tensor(3), objective.counts(canvas))
        means.append({name: float(value) for name, value in run(objective, given).means.items()})
    assert means[0] == means[1]


def _gradients(
    name: str,
    tokenizer: Tokenizer,
    prepare: Callable[[System, Any], None],
    autocast: Callable[[], Any] = nullcontext,
    *,
    uneven: float = 0.3,
) -> dict[str, torch.Tensor]:
    """Of one pass; the weights are large and uneven: a row that saw another's tokens would show it."""
    rows = [[7 + (row * 5 + place) % 11 for place in range(1 + row)] for row in range(4)]
    system, objective = _made(name, tokenizer, "cpu")
    objective.train()
    prepare(system, objective)
    with torch.no_grad():
        for parameter in system.parameters():
            parameter.add_(uneven * torch.randn_like(parameter))
    canvas = system.layout.canvas(Rows.of(rows), Rows.of(rows[::-1]), shape=(5, 4))
    run, keys = Plain(autocast), torch.arange(4)
    run.clear(list(system.parameters()))
    run(objective, MicroBatch(canvas, keys, torch.tensor(3), objective.counts(canvas)))
    return {key: value.grad for key, value in system.named_parameters() if value.grad is not None}


def _assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.allclose(found[key], value, atol=1e-3 * float(value.abs().max()) + 1e-7), key


@pytest.mark.parametrize("name", LEARNED)
def test_rows_side_by_side_train_as_rows_apart(name: str, tokenizer: Tokenizer) -> None:
    def laid(tile: int) -> Callable[[System, Any], None]:
        def lay(system: System, objective: Any) -> None:
            for part in system.modules():
                if isinstance(part, Stack):
                    part.tile = tile

        return lay

    _assert_same(_gradients(name, tokenizer, laid(64)), _gradients(name, tokenizer, laid(1)))


@pytest.mark.parametrize("name", LEARNED)
def test_layers_without_a_mask_are_only_given_canvases_without_padding(
    name: str, tokenizer: Tokenizer
) -> None:
    system, _ = _made(name, tokenizer, "cpu")
    if not any(part.full for part in system.modules() if isinstance(part, Stack)):
        assert not name.startswith("diffus") or not system.layout.full
        return
    layout, rows = system.layout, Rows.of([[7, 8, 9], [10]])
    prompt = layout.prompt(layout.source(rows), torch.tensor([[1, 2], [3, 2]]), width=4)
    canvas = layout.canvas(rows, rows, shape=(6, 5))
    varied = layout.vary(canvas, torch.tensor([0.1, 0.9]))
    ended = layout.close(prompt, torch.tensor([6, 7, 8, 9]))
    for given in (canvas, varied, prompt, ended, layout.blank(canvas), layout.blank(prompt)):
        assert not given.padding.any()


@pytest.mark.parametrize("name", LEARNED)
def test_fused_passes_have_the_gradients_of_plain_ones(
    name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the compiler, and in float32: all that is fused, in its place."""
    monkeypatch.setattr(fused, "_compiled", lambda function: function)
    found = _gradients(name, tokenizer, lambda system, objective: passes.fuse(objective))
    _assert_same(found, _gradients(name, tokenizer, lambda system, objective: None))


@pytest.mark.parametrize("name", ["difformer", "diffuseq", "transformer"])
def test_fused_passes_round_no_worse_than_plain_ones(
    name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16: both gradients are about as far from that in float32."""
    monkeypatch.setattr(fused, "_compiled", lambda function: function)

    def rough() -> Any:
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)

    def fuse(system: System, objective: Any) -> None:
        passes.fuse(objective)

    exact = _gradients(name, tokenizer, lambda system, objective: None, uneven=0.0)
    plain = _gradients(name, tokenizer, lambda system, objective: None, rough, uneven=0.0)
    mine = _gradients(name, tokenizer, fuse, rough, uneven=0.0)
    assert mine.keys() == plain.keys()
    flat = [torch.cat([each[key].double().flatten() for key in exact]) for each in (exact, plain, mine)]
    error, own = (1 - torch.cosine_similarity(flat[0], each, dim=0) for each in flat[1:])
    assert own < 2 * error + 1e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", LEARNED)
def test_graphs_train_as_plain_passes(name: str, tokenizer: Tokenizer) -> None:
    losses, weights = _trained(name, tokenizer, Recorded(Plain(nullcontext)), "cuda")
    expected, others = _trained(name, tokenizer, Plain(nullcontext), "cuda")
    assert losses == pytest.approx(expected, rel=1e-3)
    for key, value in others.items():
        assert torch.allclose(weights[key].double(), value.double(), atol=1e-3), key


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["difformer", "diffuseq", "transformer"])
def test_fused_training_loses_what_plain_training_does(name: str, tokenizer: Tokenizer) -> None:
    def autocast() -> Any:
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)

    losses, _ = _trained(name, tokenizer, Recorded(Plain(autocast)), "cuda", compiled=True)
    expected, _ = _trained(name, tokenizer, Plain(autocast), "cuda")
    assert losses == pytest.approx(expected, rel=0.02)


def test_what_is_only_watched_leaves_nothing_for_gradients(tokenizer: Tokenizer) -> None:
    """DiffuSeq rounds z₀ to learn and ẑ₀ to be looked at: the second is not kept for a backward pass."""
    system, objective = _made("diffuseq", tokenizer, "cpu")
    canvas = _feed(system, "cpu")(1)[0]
    tallies = objective(canvas, objective.draw(canvas, torch.arange(4), torch.tensor(3)))
    assert {name for name, tally in tallies.items() if tally.value.requires_grad} == set(objective.weights)
    assert {"nll", "nll_text"} == tallies.keys() - objective.weights.keys()


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("diffuseq", {"nll", "nll_text"}),
        ("diffuseq-guided", {"nll", "nll_text"}),  # one objective within another
        ("dinoiser", {"nll"}),
        ("difformer", set()),  # the anchor's surprises are there already
        ("seqdiffuseq", set()),  # the schedule follows the difficulty
        ("cdcd", set()),
        ("transformer", set()),
    ],
)
def test_where_nobody_looks_only_what_costs_and_teaches_nothing_is_left_out(
    name: str, left_out: set[str], tokenizer: Tokenizer
) -> None:
    system, objective = _made(name, tokenizer, "cpu")
    canvas = _feed(system, "cpu")(1)[0]
    valid = evaluate_loss(objective, [canvas], seed=0)
    objective.train()

    def terms() -> set[str]:
        return set(objective(canvas, objective.draw(canvas, torch.arange(4), torch.tensor(3))))

    everything = terms()
    assert everything == set(objective.counts(canvas))
    objective.watch(False)
    assert objective.idle == left_out
    assert terms() == everything - left_out
    assert evaluate_loss(objective, [canvas], seed=0) == valid  # validation looks


def test_what_is_compiled_is_what_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions themselves, without the compiler: a residual and its norm, and two surprises."""
    monkeypatch.setattr(fused, "_compiled", lambda function: function)
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 3, 8, requires_grad=True)
    plain = AddNorm(8, 0.0)
    ours = fused.add_norm(x, y, plain.weight, plain.bias, eps=plain.eps, rate=0.0)
    assert torch.allclose(ours, plain(x, y), atol=1e-6)
    logits, tokens = torch.randn(2, 3, 11), torch.randint(11, (2, 3))
    at, mean = fused.surprises(logits, tokens)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
    assert torch.allclose(at.flatten(), expected, atol=1e-6)
    assert torch.allclose(mean, -logits.log_softmax(-1).mean(-1), atol=1e-6)


def test_fusing_reaches_every_residual_and_objective(tokenizer: Tokenizer) -> None:
    system, objective = _made("diffuseq-guided", tokenizer, "cpu")
    before = copy.copy(objective.spelling)
    passes.fuse(objective)
    fusible = (AddNorm, SelfAttention, CrossAttention, FeedForward)
    assert all(part.fused for part in system.modules() if isinstance(part, fusible))
    assert all(part.tile > 1 for part in system.modules() if isinstance(part, Stack))
    inner = [part for part in objective.modules() if isinstance(part, passes.Objective)]
    assert len(inner) == 2
    assert all(part.train().spelling is fused.spell for part in inner)
    assert all(part.train().normal is fused.normal for part in inner)
    assert objective.eval().spelling is before
