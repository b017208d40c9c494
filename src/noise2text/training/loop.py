"""The training loop: a generator of steps. The caller logs, validates and saves.

Step n is a pure function of the weights, the optimiser's state and n: the data, the noise and the coin of
self-conditioning come from keys, and dropout's generator is seeded anew each step. So a run that was killed
and resumed ends where it would have ended. Several processes share the rows of a step (processes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas
from noise2text.training.distributed import SingleProcess
from noise2text.training.lr_schedules import LRSchedule
from noise2text.training.objective import Objective
from noise2text.training.process_group import ProcessGroup
from noise2text.training.step_runner import MicroBatch, StepRunner

__all__ = ["StepReport", "evaluate_loss", "train_steps"]

_TRAINING, _DROPOUT, _VALIDATION = 1, 2, 3  # what a key is for


@dataclass(frozen=True)
class StepReport:
    """What a step did; tensors stay on the device until somebody looks."""

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
    step_runner: StepRunner,
    parallel: SingleProcess | None = None,
    is_logged: Callable[[int], bool] = lambda step: True,
) -> Iterator[StepReport]:
    """Train from step `first` to step `last`, both done; `batches` gives a step's micro-batches.

    Of several processes, each feeds its share of the rows; `parallel` holds the model together. The means of
    a step that nobody has `is_logged` at are without the terms that would be there for looking alone.
    """
    parallel = parallel or SingleProcess(objective, objective, ProcessGroup())
    group = parallel.group
    parameters = [parameter for param_group in optimizer.param_groups for parameter in param_group["params"]]
    for step in range(first, last + 1):
        objective.train()
        objective.log_terms(is_logged(step))
        step_runner.clear_gradients(parameters)
        torch.manual_seed(int(make_key(seed, _DROPOUT, step)) ^ group.rank)
        canvases = batches(step)
        spans = group.gather_spans(len(canvas.tokens) for canvas in canvases)
        counts = group.all_reduce_mean(
            _count_positions(objective, canvases) | {"tokens": _count_tokens(canvases)}
        )
        num_tokens = group.world_size * counts.pop("tokens")
        term_means = {name: torch.zeros((), device=count.device) for name, count in counts.items()}
        row = 0
        for canvas, span in zip(canvases, spans, strict=True):
            keys = _row_keys(canvas, seed, _TRAINING, step, first_row=row + span.first_row)
            row += span.total_rows
            with parallel.micro_batch(last=span is spans[-1]):
                micro_batch = MicroBatch(canvas, keys, make_key(seed, _TRAINING, step), counts)
                output = step_runner(objective, micro_batch)
            objective.observe(*group.gather(objective.observed(output.draws, output.token_losses), span))
            term_means = {name: term_means[name] + mean for name, mean in output.means.items()}
        for param_group in optimizer.param_groups:
            param_group["lr"] = peak_lr * lr_schedule(step)
        grad_norm = parallel.clip_norm(parameters, clip_norm if clip_norm > 0 else torch.inf)
        optimizer.step()
        parallel.update(step)
        term_means = group.all_reduce_mean(term_means)
        yield StepReport(
            step, objective.loss(term_means), term_means, grad_norm, peak_lr * lr_schedule(step), num_tokens
        )


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
        for name, loss in objective(canvas, draws).items():
            term_means[name] = term_means[name] + loss.total() / counts[name]
    return {"loss": objective.loss(term_means).item()} | {
        name: total.item() for name, total in term_means.items()
    }


def _count_positions(objective: Objective, canvases: Sequence[Canvas]) -> dict[str, Tensor]:
    """How many places each term counts over all the canvases."""
    counts = [objective.counts(canvas) for canvas in canvases]
    return {name: torch.stack([count[name] for count in counts]).sum() for name in counts[0]}


def _count_tokens(canvases: Sequence[Canvas]) -> Tensor:
    """How many tokens the networks see."""
    return torch.stack([(~c.padding).sum() + (~c.source.padding).sum() for c in canvases]).sum()


def _row_keys(canvas: Canvas, seed: int, purpose: int, step: int, *, first_row: int) -> Tensor:
    rows = torch.arange(first_row, first_row + len(canvas.tokens), device=canvas.tokens.device)
    return make_key(seed, purpose, step, rows)
