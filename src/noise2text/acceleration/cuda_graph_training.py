"""Training with CUDA graphs: a forward and backward pass is captured once and replayed.

Launching kernels takes most of the host's time. `CudaGraphTrainingPass` captures the training loop's pass
over one micro-batch (draws, forward, loss, backward) as a CUDA graph and replays it without the host:

    cuda_graph_pass = CudaGraphTrainingPass(eager_pass, objective, parameters)
    cuda_graph_pass.zero_grad()
    draws, losses, means = cuda_graph_pass(canvas, keys, step_key, counts)

There is one graph for each shape of a canvas, each value of the step's flags and each set of computed terms.
A graph keeps nothing of a step: all its inputs are copied to fixed places, and the loop seeds dropout at each
step, so that a run that was stopped and resumed ends with the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from noise2text.acceleration.cuda_graphs import CudaGraph
from noise2text.acceleration.tensor_trees import clone_tensors, copy_tensors, shapes_of
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import TokenLoss

__all__ = ["CudaGraphTrainingPass"]

Output = tuple[Any, dict[str, TokenLoss], dict[str, Tensor]]
"""The draws of a pass, its losses and their means, without gradients."""

AddGradients = Callable[[Canvas, Tensor, Tensor, Mapping[str, Tensor]], Output]
"""The captured pass: of a canvas, the keys of its rows, the key of the step and the counts of the step."""


class GraphableObjective(Protocol):
    """The part of training's `Objective` that decides which operations a pass runs."""

    @property
    def skipped_terms(self) -> frozenset[str]: ...

    def step_flags(self, step_key: Tensor) -> Hashable: ...


class CudaGraphTrainingPass:
    """A forward and backward pass as CUDA graphs, whose gradients keep their places in memory.

    The first micro-batch of a step overwrites the gradients, so that nothing has to be cleared before; the
    others add to them.
    """

    def __init__(
        self, add_gradients: AddGradients, objective: GraphableObjective, parameters: Sequence[nn.Parameter]
    ) -> None:
        self.add_gradients, self.objective, self.parameters = add_gradients, objective, parameters
        self.gradient_buffers: dict[nn.Parameter, Tensor] = {}  # in the order in which graphs created them
        self.is_first_micro_batch = False
        self.graphs: dict[Hashable, _FixedShapePass] = {}
        self.pool = torch.cuda.graph_pool_handle()  # no two graphs run at once: they share memory

    def zero_grad(self) -> None:
        """Start a new step: its first micro-batch overwrites the gradients."""
        self.is_first_micro_batch = True

    def __call__(
        self, canvas: Canvas, keys: Tensor, step_key: Tensor, counts: Mapping[str, Tensor]
    ) -> Output:
        """Add a micro-batch's gradients; returns its draws, its losses and their means.

        The next call overwrites what is returned.
        """
        is_first, self.is_first_micro_batch = self.is_first_micro_batch, False
        flags, skipped = self.objective.step_flags(step_key), self.objective.skipped_terms
        cache_key = (is_first, flags, skipped, *shapes_of(canvas))
        if cache_key not in self.graphs:
            run = self._overwrite_gradients if is_first else self.add_gradients
            self.graphs[cache_key] = self._capture(run, canvas, keys, step_key, counts)
        captured = self.graphs[cache_key]
        new_buffers = list(self.gradient_buffers.values())[captured.known_buffers :] if is_first else []
        if new_buffers:
            torch._foreach_zero_(new_buffers)
        return captured(canvas, keys, counts)

    def _overwrite_gradients(
        self, canvas: Canvas, keys: Tensor, step_key: Tensor, counts: Mapping[str, Tensor]
    ) -> Output:
        """The same pass; its gradients are computed elsewhere and copied over those of the step before."""
        gradient_buffers = [(parameter, parameter.grad) for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        output = self.add_gradients(canvas, keys, step_key, counts)
        # In a first trial run the new gradient itself becomes the buffer.
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

    def _capture(
        self,
        run: AddGradients,
        canvas: Canvas,
        keys: Tensor,
        step_key: Tensor,
        counts: Mapping[str, Tensor],
    ) -> _FixedShapePass:
        """A new graph; its trial runs leave the gradients and the generator of dropout as they were."""
        before = [(p.grad, p.grad.clone()) for p in self.parameters if p.grad is not None]
        with torch.random.fork_rng([keys.device] if keys.device.type == "cuda" else []):
            captured = _FixedShapePass(run, self.pool, canvas, keys, step_key, counts)
        for parameter in self.parameters:
            if parameter.grad is not None:  # a gradient that the trial runs created keeps its place
                self.gradient_buffers[parameter] = parameter.grad.zero_()
        for gradient, value in before:
            gradient.copy_(value)
        captured.known_buffers = len(self.gradient_buffers)
        return captured


class _FixedShapePass:
    """One graph with the fixed places of its inputs; `known_buffers` gradients existed when it was made."""

    known_buffers: int

    def __init__(
        self,
        run: AddGradients,
        pool: Any,
        canvas: Canvas,
        keys: Tensor,
        step_key: Tensor,
        counts: Mapping[str, Tensor],
    ) -> None:
        self.canvas, self.keys = clone_tensors(canvas), keys.clone()
        self.counts = {name: count.clone() for name, count in counts.items()}
        self.graph: CudaGraph[Output] = CudaGraph(
            lambda: run(self.canvas, self.keys, step_key, self.counts), pool=pool
        )

    def __call__(self, canvas: Canvas, keys: Tensor, counts: Mapping[str, Tensor]) -> Output:
        copy_tensors(self.canvas, canvas)
        self.keys.copy_(keys)
        for name, count in counts.items():
            self.counts[name].copy_(count)
        return self.graph()
