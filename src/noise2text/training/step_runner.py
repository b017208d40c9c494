"""A pass over one micro-batch, forward and backward, which leaves gradients behind.

`Plain` runs it operation by operation. On a GPU most of the host's time goes into launching kernels, so
`Recorded` records the very same pass as a CUDA graph, once for each shape of a batch, each fall of the
step's coin and each set of terms, and replays it: draws, guess, forward and backward, with no host in
between. A recording has no memory of a step: all that a pass needs is copied to where it looks, and
dropout's generator is seeded by the loop at each step, so that a run ends the same whether it was stopped
in between or not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from noise2text.acceleration.cuda_graphs import Graph, copied, fill, shapes
from noise2text.data.layouts.canvas import Canvas
from noise2text.diffusion.losses import Tally
from noise2text.nn.layers import AddNorm, CrossAttention, FeedForward, SelfAttention, Stack
from noise2text.training.objective import Objective

__all__ = ["MicroBatch", "Pass", "Passed", "Plain", "Recorded", "fuse"]

TILE = 64
"""How many queries a GPU's attention takes at once."""

Autocast = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class MicroBatch:
    """All that a pass needs to know."""

    canvas: Canvas
    keys: Tensor  # (B,), of the rows' noise
    step_key: Tensor  # of what chance decides for the whole step; on the host
    counts: Mapping[str, Tensor]  # how many places each term counts in the whole step


@dataclass(frozen=True)
class Passed:
    """What a pass drew, what it counted, and the means over the whole step's counts."""

    draws: Any
    tallies: Mapping[str, Tally]
    means: Mapping[str, Tensor]


_Run = Callable[[Objective, MicroBatch], Passed]


class Pass(Protocol):
    """How a micro-batch is passed through an objective."""

    def clear(self, parameters: Sequence[nn.Parameter]) -> None:
        """Forget the gradients of the step before."""

    def __call__(self, objective: Objective, given: MicroBatch) -> Passed:
        """Add this micro-batch's part to the gradients."""


class Plain:
    """Operation by operation, on any device."""

    def __init__(self, autocast: Autocast) -> None:
        self.autocast = autocast

    def clear(self, parameters: Sequence[nn.Parameter]) -> None:
        for parameter in parameters:
            parameter.grad = None

    def __call__(self, objective: Objective, given: MicroBatch) -> Passed:
        canvas = given.canvas
        draws = objective.draw(canvas, given.keys, given.step_key)
        with self.autocast():
            tallies = self.forward(objective, canvas, draws)
        means = {name: tally.total() / given.counts[name] for name, tally in tallies.items()}
        objective.loss(means).backward()
        counted = {name: Tally(tally.value.detach(), tally.mask) for name, tally in tallies.items()}
        return Passed(draws, counted, {name: mean.detach() for name, mean in means.items()})

    def forward(self, objective: Objective, canvas: Canvas, draws: Any) -> dict[str, Tally]:
        """The objective's tallies."""
        tallies: dict[str, Tally] = objective(canvas, draws)
        return tallies


class Recorded:
    """Another pass as CUDA graphs, whose gradients keep their places in memory.

    A step's first micro-batch writes there, so that nothing has to be cleared before; the others add.
    """

    def __init__(self, plain: Plain) -> None:
        self.plain = plain
        self.parameters: Sequence[nn.Parameter] = ()
        self.places: dict[nn.Parameter, Tensor] = {}  # of gradients, in the order in which they were met
        self.begins = False
        self.graphs: dict[Hashable, _Recording] = {}
        self.pool = torch.cuda.graph_pool_handle()  # no two of them run at once: they share memory

    def clear(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters, self.begins = parameters, True

    def __call__(self, objective: Objective, given: MicroBatch) -> Passed:
        writes, self.begins = self.begins, False
        name = (writes, objective.coin(given.step_key), objective.idle, *shapes(given.canvas))
        if name not in self.graphs:
            self.graphs[name] = self._record(self._write if writes else self.plain, objective, given)
        recording = self.graphs[name]
        unknown = list(self.places.values())[recording.known :] if writes else []
        if unknown:
            torch._foreach_zero_(unknown)
        return recording(given)

    def _write(self, objective: Objective, given: MicroBatch) -> Passed:
        """The pass, whose gradients, made elsewhere, are put over those of the step before."""
        places = [(parameter, parameter.grad) for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        passed = self.plain(objective, given)
        # In a first trial run the new gradient itself becomes the place.
        known = [(parameter, place) for parameter, place in places if place is not None]
        fresh = {place: parameter.grad for parameter, place in known if parameter.grad is not None}
        unused = [place for _, place in known if place not in fresh]
        if fresh:
            torch._foreach_copy_(list(fresh), list(fresh.values()))
        if unused:
            torch._foreach_zero_(unused)
        for parameter, place in known:
            parameter.grad = place
        return passed

    def _record(self, run: _Run, objective: Objective, given: MicroBatch) -> _Recording:
        """A new recording; its trial runs leave the gradients, and dropout's generator, as they were."""
        before = [(p.grad, p.grad.clone()) for p in self.parameters if p.grad is not None]
        device = given.keys.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            recording = _Recording(run, self.pool, objective, given)
        for parameter in self.parameters:
            if parameter.grad is not None:  # made by the trial runs, where there was none: it keeps its place
                self.places[parameter] = parameter.grad.zero_()
        for gradient, value in before:
            gradient.copy_(value)
        recording.known = len(self.places)
        return recording


class _Recording:
    """One graph, and the places where it finds its batch; it knows that many places of gradients."""

    known: int

    def __init__(self, run: _Run, pool: Any, objective: Objective, given: MicroBatch) -> None:
        counts = {name: count.clone() for name, count in given.counts.items()}
        self.own = MicroBatch(copied(given.canvas), given.keys.clone(), given.step_key, counts)
        self.graph: Graph[Passed] = Graph(lambda: run(objective, self.own), pool=pool)

    def __call__(self, given: MicroBatch) -> Passed:
        fill(self.own.canvas, given.canvas)
        self.own.keys.copy_(given.keys)
        for name, count in given.counts.items():
            self.own.counts[name].copy_(count)
        return self.graph()


def fuse(objective: Objective) -> None:
    """Have what memory bounds compiled, products aligned, and short rows side by side, in an objective."""
    from noise2text.acceleration.fused import normal, spell

    for part in objective.modules():
        if isinstance(part, AddNorm | SelfAttention | CrossAttention | FeedForward):
            part.fused = True
        if isinstance(part, Stack):
            part.tile = TILE
        if isinstance(part, Objective):
            part.fused_spelling, part.fused_normal = spell, normal
