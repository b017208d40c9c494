"""The training loop: `train_steps` yields a report after each step, and the caller logs, validates and saves.

Step n is a pure function of the weights, the optimizer's state and n: keys decide the data, the noise and
self-conditioning, and each step seeds the generator of dropout. So a run that was killed and resumed ends
with the same weights. Several processes share the rows of a step (process_group.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import TokenLoss
from noise2text.training.distributed import SingleProcess
from noise2text.training.lr_schedules import LRSchedule
from noise2text.training.objective import Objective
from noise2text.training.process_group import ProcessGroup, RowSpan

__all__ = ["Autocast", "GraphedPass", "StepReport", "evaluate_loss", "train_step", "train_steps"]

_TRAINING, _DROPOUT, _VALIDATION = 1, 2, 3  # the purposes of keys

Autocast = Callable[[], AbstractContextManager[object]]
"""Makes the context of mixed precision that a forward pass runs in."""


class GraphedPass(Protocol):
    """A forward and backward pass that replays CUDA graphs (acceleration/graphed_training.py)."""

    def zero_grad(self) -> None:
        """Start a new step: its first micro-batch overwrites the gradients."""

    def __call__(
        self, objective: Any, canvas: Canvas, keys: Tensor, step_key: Tensor, counts: Mapping[str, Tensor]
    ) -> tuple[Any, Mapping[str, TokenLoss], Mapping[str, Tensor]]:
        """Add a micro-batch's gradients; returns its draws, its losses and their means."""


@dataclass(frozen=True)
class StepReport:
    """What a step did; the tensors stay on the device until they are read."""

    step: int
    loss: Tensor
    means: dict[str, Tensor]
    grad_norm: Tensor
    lr: float
    num_tokens: Tensor


def train_steps(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    batches: Callable[[int], Sequence[Canvas]],
    *,
    first: int,
    last: int,
    peak_lr: float,
    lr_schedule: LRSchedule,
    clip_norm: float,
    seed: int,
    autocast: Autocast = nullcontext,
    strategy: SingleProcess | None = None,
    graphed: GraphedPass | None = None,
    is_logged: Callable[[int], bool] = lambda step: True,
) -> Iterator[StepReport]:
    """Train from step `first` to step `last`, both included; `batches` gives the micro-batches of a step.

    Each process passes its share of the rows. Terms that are only logged are computed where `is_logged`.
    """
    strategy = strategy or SingleProcess(objective, objective, ProcessGroup())
    for step in range(first, last + 1):
        objective.log_terms(is_logged(step))
        yield train_step(
            objective,
            optimizer,
            batches(step),
            step=step,
            lr=peak_lr * lr_schedule(step),
            clip_norm=clip_norm,
            seed=seed,
            autocast=autocast,
            strategy=strategy,
            graphed=graphed,
        )


def train_step(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    canvases: Sequence[Canvas],
    *,
    step: int,
    lr: float,
    clip_norm: float,
    seed: int,
    autocast: Autocast,
    strategy: SingleProcess,
    graphed: GraphedPass | None,
) -> StepReport:
    """One update of the weights: canvases → draws → noise → denoiser → terms → loss → backward → update."""
    group, step_key = strategy.group, make_key(seed, _TRAINING, step)
    parameters = [parameter for param_group in optimizer.param_groups for parameter in param_group["params"]]
    objective.train()
    torch.manual_seed(int(make_key(seed, _DROPOUT, step)) ^ group.rank)
    counts, num_tokens = _count(objective, canvases, group)
    term_means = {name: torch.zeros((), device=count.device) for name, count in counts.items()}
    (graphed or optimizer).zero_grad()
    for canvas, keys, span, is_last in _micro_batches(canvases, seed, step, group):
        if graphed is not None:
            draws, losses, means = graphed(objective, canvas, keys, step_key, counts)
        else:
            with strategy.micro_batch(last=is_last):
                draws = objective.draw(canvas, keys, step_key)
                with autocast():
                    losses = strategy.module(canvas, draws)  # noise → denoiser → terms
                means = objective.means(losses, counts)
                objective.loss(means).backward()
        detached = {name: loss.detach() for name, loss in losses.items()}
        objective.observe(*group.gather(objective.observed(draws, detached), span))
        term_means = {name: term_means[name] + mean.detach() for name, mean in means.items()}
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    grad_norm = strategy.clip_norm(parameters, clip_norm if clip_norm > 0 else torch.inf)
    optimizer.step()
    strategy.update(step)
    term_means = group.all_reduce_mean(term_means)
    return StepReport(step, objective.loss(term_means), term_means, grad_norm, lr, num_tokens)


@torch.no_grad()
def evaluate_loss(objective: Objective, canvases: Sequence[Canvas], *, seed: int) -> dict[str, float]:
    """Each term's mean over the canvases and their weighted sum `loss`; no dropout, fixed noise."""
    objective.eval()
    counts = _count_positions(objective, canvases)
    term_means = {name: torch.zeros((), device=count.device) for name, count in counts.items()}
    row = 0
    for number, canvas in enumerate(canvases):
        keys = _row_keys(canvas, seed, _VALIDATION, 0, first_row=row)
        row += len(keys)
        draws = objective.draw(canvas, keys, make_key(seed, _VALIDATION, number))
        for name, mean in objective.means(objective(canvas, draws), counts).items():
            term_means[name] = term_means[name] + mean
    return {"loss": objective.loss(term_means).item()} | {
        name: total.item() for name, total in term_means.items()
    }


def _count(
    objective: Objective, canvases: Sequence[Canvas], group: ProcessGroup
) -> tuple[dict[str, Tensor], Tensor]:
    """How many values of each term count in the step, averaged over the processes; and all its tokens."""
    tokens = torch.stack([(~c.padding).sum() + (~c.source.padding).sum() for c in canvases]).sum()
    counts = group.all_reduce_mean(_count_positions(objective, canvases) | {"tokens": tokens})
    return counts, group.world_size * counts.pop("tokens")


def _count_positions(objective: Objective, canvases: Sequence[Canvas]) -> dict[str, Tensor]:
    """How many values of each term count on all the canvases."""
    counts = [objective.counts(canvas) for canvas in canvases]
    return {name: torch.stack([count[name] for count in counts]).sum() for name in counts[0]}


def _micro_batches(
    canvases: Sequence[Canvas], seed: int, step: int, group: ProcessGroup
) -> Iterator[tuple[Canvas, Tensor, RowSpan, bool]]:
    """Each canvas, the keys of its rows, their place in the whole batch, and whether it is the last."""
    spans = group.gather_spans(len(canvas.tokens) for canvas in canvases)
    row = 0
    for canvas, span in zip(canvases, spans, strict=True):
        keys = _row_keys(canvas, seed, _TRAINING, step, first_row=row + span.first_row)
        row += span.total_rows
        yield canvas, keys, span, span is spans[-1]


def _row_keys(canvas: Canvas, seed: int, purpose: int, step: int, *, first_row: int) -> Tensor:
    rows = torch.arange(first_row, first_row + len(canvas.tokens), device=canvas.tokens.device)
    return make_key(seed, purpose, step, rows)
