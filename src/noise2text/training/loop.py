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

from noise2text.core.random import key
from noise2text.data.layouts.canvas import Canvas
from noise2text.training.distributed import Alone
from noise2text.training.lr_schedules import Rate
from noise2text.training.objective import Objective
from noise2text.training.process_group import Team
from noise2text.training.step_runner import MicroBatch, Pass

__all__ = ["Tick", "evaluate_loss", "train_steps"]

_TRAINING, _DROPOUT, _VALIDATION = 1, 2, 3  # what a key is for


@dataclass(frozen=True)
class Tick:
    """What a step did; tensors stay on the device until somebody looks."""

    step: int
    loss: Tensor
    means: dict[str, Tensor]
    gradient: Tensor
    rate: float
    tokens: Tensor


def train_steps(
    objective: Objective,
    optimiser: torch.optim.Optimizer,
    feed: Callable[[int], Sequence[Canvas]],
    *,
    first: int,
    last: int,
    peak: float,
    rate: Rate,
    clip: float,
    seed: int,
    run: Pass,
    engine: Alone | None = None,
    looked: Callable[[int], bool] = lambda step: True,
) -> Iterator[Tick]:
    """Train from step `first` to step `last`, both done; `feed` gives a step's micro-batches.

    Of several processes, each feeds its share of the rows; `engine` holds the model together. The means of
    a step that nobody has `looked` at are without the terms that would be there for looking alone.
    """
    engine = engine or Alone(objective, objective, Team())
    team = engine.team
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for step in range(first, last + 1):
        objective.train()
        objective.watch(looked(step))
        run.clear(parameters)
        torch.manual_seed(int(key(seed, _DROPOUT, step)) ^ team.rank)
        canvases = feed(step)
        spans = team.spans(len(canvas.tokens) for canvas in canvases)
        counts = team.means(_counts(objective, canvases) | {"tokens": _tokens(canvases)})
        tokens = team.world * counts.pop("tokens")
        totals = {name: torch.zeros((), device=count.device) for name, count in counts.items()}
        row = 0
        for canvas, span in zip(canvases, spans, strict=True):
            keys = _row_keys(canvas, seed, _TRAINING, step, first_row=row + span.first)
            row += span.whole
            with engine.micro_batch(last=span is spans[-1]):
                given = MicroBatch(canvas, keys, key(seed, _TRAINING, step), counts)
                passed = run(objective, given)
            objective.observe(*team.gather(objective.seen(passed.draws, passed.tallies), span))
            totals = {name: totals[name] + mean for name, mean in passed.means.items()}
        for group in optimiser.param_groups:
            group["lr"] = peak * rate(step)
        gradient = engine.clip(parameters, clip if clip > 0 else torch.inf)
        optimiser.step()
        engine.settle(step)
        totals = team.means(totals)
        yield Tick(step, objective.loss(totals), totals, gradient, peak * rate(step), tokens)


@torch.no_grad()
def evaluate_loss(objective: Objective, canvases: Sequence[Canvas], *, seed: int) -> dict[str, float]:
    """Each term's mean over the canvases and their weighted sum `loss`; no dropout, fixed noise."""
    objective.eval()
    counts = _counts(objective, canvases)
    totals = {name: torch.zeros((), device=count.device) for name, count in counts.items()}
    row = 0
    for number, canvas in enumerate(canvases):
        keys = _row_keys(canvas, seed, _VALIDATION, 0, first_row=row)
        row += len(keys)
        draws = objective.draw(canvas, keys, key(seed, _VALIDATION, number))
        for name, tally in objective(canvas, draws).items():
            totals[name] = totals[name] + tally.total() / counts[name]
    return {"loss": objective.loss(totals).item()} | {name: total.item() for name, total in totals.items()}


def _counts(objective: Objective, canvases: Sequence[Canvas]) -> dict[str, Tensor]:
    """How many places each term counts over all the canvases."""
    counts = [objective.counts(canvas) for canvas in canvases]
    return {name: torch.stack([count[name] for count in counts]).sum() for name in counts[0]}


def _tokens(canvases: Sequence[Canvas]) -> Tensor:
    """How many tokens the networks see."""
    return torch.stack([(~c.padding).sum() + (~c.source.padding).sum() for c in canvases]).sum()


def _row_keys(canvas: Canvas, seed: int, purpose: int, step: int, *, first_row: int) -> Tensor:
    rows = torch.arange(first_row, first_row + len(canvas.tokens), device=canvas.tokens.device)
    return key(seed, purpose, step, rows)
