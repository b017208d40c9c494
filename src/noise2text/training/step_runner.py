"""A pass over one micro-batch, forward and backward, which leaves gradients behind.

`EagerStep` runs it operation by operation. On a GPU most of the host's time goes into launching kernels, so
`GraphedStep` records the very same pass as a CUDA graph, once for each shape of a batch, each fall of the
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

from noise2text.acceleration.cuda_graphs import CudaGraph, clone_tensors, copy_tensors, shapes_of
from noise2text.acceleration.fused import fuse
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import TokenLoss
from noise2text.training.objective import Objective

__all__ = ["EagerStep", "GraphedStep", "MicroBatch", "StepOutput", "StepRunner", "fuse"]

Autocast = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class MicroBatch:
    """All that a pass needs to know."""

    canvas: Canvas
    keys: Tensor  # (B,), of the rows' noise
    step_key: Tensor  # of what chance decides for the whole step; on the host
    counts: Mapping[str, Tensor]  # how many places each term counts in the whole step


@dataclass(frozen=True)
class StepOutput:
    """What a pass drew, what it counted, and the means over the whole step's counts."""

    draws: Any
    token_losses: Mapping[str, TokenLoss]
    means: Mapping[str, Tensor]


_RunStep = Callable[[Objective, MicroBatch], StepOutput]


class StepRunner(Protocol):
    """How a micro-batch is passed through an objective."""

    def clear_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Forget the gradients of the step before."""

    def __call__(self, objective: Objective, batch: MicroBatch) -> StepOutput:
        """Add this micro-batch's part to the gradients."""


class EagerStep:
    """Operation by operation, on any device."""

    def __init__(self, autocast: Autocast) -> None:
        self.autocast = autocast

    def clear_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        for parameter in parameters:
            parameter.grad = None

    def __call__(self, objective: Objective, batch: MicroBatch) -> StepOutput:
        canvas = batch.canvas
        draws = objective.draw(canvas, batch.keys, batch.step_key)
        with self.autocast():
            token_losses = self.forward(objective, canvas, draws)
        means = {name: token_loss.total() / batch.counts[name] for name, token_loss in token_losses.items()}
        objective.loss(means).backward()
        detached = {
            name: TokenLoss(token_loss.values.detach(), token_loss.mask)
            for name, token_loss in token_losses.items()
        }
        return StepOutput(draws, detached, {name: mean.detach() for name, mean in means.items()})

    def forward(self, objective: Objective, canvas: Canvas, draws: Any) -> dict[str, TokenLoss]:
        """The objective's tallies."""
        token_losses: dict[str, TokenLoss] = objective(canvas, draws)
        return token_losses


class GraphedStep:
    """Another pass as CUDA graphs, whose gradients keep their places in memory.

    A step's first micro-batch writes there, so that nothing has to be cleared before; the others add.
    """

    def __init__(self, eager: EagerStep) -> None:
        self.eager = eager
        self.parameters: Sequence[nn.Parameter] = ()
        self.gradient_buffers: dict[
            nn.Parameter, Tensor
        ] = {}  # of gradients, in the order in which they were met
        self.is_first_micro_batch = False
        self.graphs: dict[Hashable, _CapturedStep] = {}
        self.pool = torch.cuda.graph_pool_handle()  # no two of them run at once: they share memory

    def clear_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters, self.is_first_micro_batch = parameters, True

    def __call__(self, objective: Objective, batch: MicroBatch) -> StepOutput:
        is_first, self.is_first_micro_batch = self.is_first_micro_batch, False
        name = (
            is_first,
            objective.step_flags(batch.step_key),
            objective.skipped_terms,
            *shapes_of(batch.canvas),
        )
        if name not in self.graphs:
            self.graphs[name] = self._capture(
                self._overwrite_gradients if is_first else self.eager, objective, batch
            )
        recording = self.graphs[name]
        new_buffers = list(self.gradient_buffers.values())[recording.known_buffers :] if is_first else []
        if new_buffers:
            torch._foreach_zero_(new_buffers)
        return recording(batch)

    def _overwrite_gradients(self, objective: Objective, batch: MicroBatch) -> StepOutput:
        """The pass, whose gradients, made elsewhere, are put over those of the step before."""
        gradient_buffers = [(parameter, parameter.grad) for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        output = self.eager(objective, batch)
        # In a first trial run the new gradient itself becomes the place.
        known_buffers = [(parameter, buffer) for parameter, buffer in gradient_buffers if buffer is not None]
        new_gradients = {
            buffer: parameter.grad for parameter, buffer in known_buffers if parameter.grad is not None
        }
        unused = [buffer for _, buffer in known_buffers if buffer not in new_gradients]
        if new_gradients:
            torch._foreach_copy_(list(new_gradients), list(new_gradients.values()))
        if unused:
            torch._foreach_zero_(unused)
        for parameter, buffer in known_buffers:
            parameter.grad = buffer
        return output

    def _capture(self, runner: _RunStep, objective: Objective, batch: MicroBatch) -> _CapturedStep:
        """A new recording; its trial runs leave the gradients, and dropout's generator, as they were."""
        before = [(p.grad, p.grad.clone()) for p in self.parameters if p.grad is not None]
        device = batch.keys.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            recording = _CapturedStep(runner, self.pool, objective, batch)
        for parameter in self.parameters:
            if parameter.grad is not None:  # made by the trial runs, where there was none: it keeps its place
                self.gradient_buffers[parameter] = parameter.grad.zero_()
        for gradient, value in before:
            gradient.copy_(value)
        recording.known_buffers = len(self.gradient_buffers)
        return recording


class _CapturedStep:
    """One graph, and the places where it finds its batch; it knows that many places of gradients."""

    known_buffers: int

    def __init__(self, runner: _RunStep, pool: Any, objective: Objective, batch: MicroBatch) -> None:
        counts = {name: count.clone() for name, count in batch.counts.items()}
        self.static_batch = MicroBatch(
            clone_tensors(batch.canvas), batch.keys.clone(), batch.step_key, counts
        )
        self.graph: CudaGraph[StepOutput] = CudaGraph(lambda: runner(objective, self.static_batch), pool=pool)

    def __call__(self, batch: MicroBatch) -> StepOutput:
        copy_tensors(self.static_batch.canvas, batch.canvas)
        self.static_batch.keys.copy_(batch.keys)
        for name, count in batch.counts.items():
            self.static_batch.counts[name].copy_(count)
        return self.graph()
