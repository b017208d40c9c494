"""The training loop: `train_steps` yields a report after each step, and the caller logs, validates and saves.

Step n is a pure function of n, the weights, the optimizer's state and the objective's buffers: keys decide
the data, the noise and self-conditioning, and each step seeds the generator of dropout. So a run that was
killed and resumed ends with the same weights. Several processes share the rows of a step (process_group.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from noise2text.core.random import KeyPurpose, make_key
from noise2text.data.layouts.base import Canvas
from noise2text.diffusion.losses import TokenLoss
from noise2text.training.distributed import SingleProcess, TrainingStrategy
from noise2text.training.lr_schedules import LRSchedule
from noise2text.training.objective import Objective
from noise2text.training.process_group import ProcessGroup

__all__ = [
    "Autocast",
    "EagerPass",
    "StepReport",
    "StepSettings",
    "TrainingPass",
    "evaluate_loss",
    "train_steps",
]

Autocast = AbstractContextManager[object]
"""The context of mixed precision that a forward pass runs in; each pass enters it."""


PassOutput = tuple[Any, dict[str, TokenLoss], dict[str, Tensor]]
"""A micro-batch's draws, its losses and their means, without gradients."""


class TrainingPass(Protocol):
    """A forward and backward pass: eager, or as CUDA graphs (acceleration/cuda_graph_training.py)."""

    def zero_grad(self) -> None:
        """Start a new step: its first micro-batch overwrites the gradients."""

    def __call__(
        self, canvas: Canvas, keys: Tensor, step_key: Tensor, counts: Mapping[str, Tensor]
    ) -> PassOutput:
        """Add a micro-batch's gradients; the keys are those of its rows, the counts those of the step."""


@dataclass(frozen=True)
class EagerPass:
    """A forward and backward pass, one operation after another."""

    strategy: TrainingStrategy
    optimizer: torch.optim.Optimizer
    autocast: Autocast

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def __call__(
        self, canvas: Canvas, keys: Tensor, step_key: Tensor, counts: Mapping[str, Tensor]
    ) -> PassOutput:
        objective = self.strategy.objective
        draws = objective.draw(canvas, keys, step_key)
        with self.autocast:
            losses = self.strategy.module(canvas, draws)  # noise → denoiser → terms
        means = objective.means(losses, counts)
        objective.loss(means).backward()
        detached = {name: TokenLoss(loss.values.detach(), loss.mask) for name, loss in losses.items()}
        return draws, detached, {name: mean.detach() for name, mean in means.items()}


@dataclass(frozen=True)
class StepSettings:
    """How a step changes the weights.

    Fields:
        peak_lr, lr_schedule: the learning rate, and its factor at each step.
        clip_norm: the norm that longer gradients are clipped to; 0 for none.
        seed: of the noise and of dropout.
    """

    peak_lr: float
    lr_schedule: LRSchedule
    clip_norm: float
    seed: int


@dataclass(frozen=True)
class StepReport:
    """What a step did; the tensors stay on the device until they are read."""

    step: int
    loss: Tensor
    means: dict[str, Tensor]
    grad_norm: Tensor
    lr: float
    num_tokens: Tensor


@dataclass(frozen=True)
class _StepCounts:
    """What a step has in all processes together."""

    terms: dict[str, Tensor]  # how many values of each term count, as the mean over the processes
    tokens: Tensor
    rows: list[list[int]]  # of every process, for each micro-batch

    def make_row_keys(self, *step: int, rank: int = 0) -> Sequence[Tensor]:
        """The keys of a process's rows, for each micro-batch; all rows of the step are numbered."""
        sizes = [size for of_processes in self.rows for size in of_processes]
        row_numbers = torch.arange(sum(sizes), device=self.tokens.device)
        return make_key(*step, row_numbers).split(sizes)[rank :: len(self.rows[0])]


def train_steps(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    batches: Callable[[int], Sequence[Canvas]],
    *,
    first: int,
    last: int,
    settings: StepSettings,
    strategy: TrainingStrategy | None = None,
    training_pass: TrainingPass | None = None,
    is_logged: Callable[[int], bool] = lambda step: True,
) -> Iterator[StepReport]:
    """Train from step `first` to step `last`, both included; `batches` gives the micro-batches of a step.

    A step is canvases → draws → noise → denoiser → terms → loss → backward → update. Each process passes its
    share of the rows. Terms that are only logged are computed where `is_logged`.
    """
    strategy = strategy or SingleProcess(objective, objective, ProcessGroup())
    training_pass = training_pass or EagerPass(strategy, optimizer, nullcontext())
    group, seed = strategy.group, settings.seed
    for step in range(first, last + 1):
        objective.train()
        objective.terms_logged = is_logged(step)
        torch.manual_seed(int(make_key(seed, KeyPurpose.DROPOUT, step)) ^ group.rank)
        canvases, step_key = batches(step), make_key(seed, KeyPurpose.TRAINING, step)
        counts = _count(objective, canvases, group)
        row_keys = counts.make_row_keys(seed, KeyPurpose.TRAINING, step, rank=group.rank)
        term_means: dict[str, Tensor] = {}
        training_pass.zero_grad()
        for canvas, keys, sizes in zip(canvases, row_keys, counts.rows, strict=True):
            with nullcontext() if canvas is canvases[-1] else strategy.no_sync():
                draws, losses, means = training_pass(canvas, keys, step_key, counts.terms)
            with torch.no_grad():
                if observed := objective.collect_observations(draws, losses):
                    objective.observe(*group.gather(observed, sizes))
            term_means = {name: term_means.get(name, 0) + mean for name, mean in means.items()}
        lr, parameters = settings.peak_lr * settings.lr_schedule(step), []
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
            parameters += param_group["params"]
        grad_norm = strategy.clip_norm(parameters, settings.clip_norm or torch.inf)
        optimizer.step()
        strategy.adapt(step)
        term_means = group.all_reduce_mean(term_means)
        yield StepReport(step, objective.loss(term_means), term_means, grad_norm, lr, counts.tokens)


def _count(objective: Objective, canvases: Sequence[Canvas], group: ProcessGroup) -> _StepCounts:
    """What a step on these canvases and those of the other processes has."""
    found = [objective.counts(canvas) for canvas in canvases]
    terms = {name: torch.stack([count[name] for count in found]).sum() for name in found[0]}
    tokens = torch.stack([(~c.padding).sum() + (~c.source.padding).sum() for c in canvases]).sum()
    rows = [len(canvas.tokens) for canvas in canvases]
    if group.world_size == 1:
        return _StepCounts(terms, tokens, [[size] for size in rows])
    means = group.all_reduce_mean(terms | {"tokens": tokens})
    tokens = group.world_size * means.pop("tokens")
    return _StepCounts(means, tokens, group.gather_sizes(rows))


@torch.no_grad()
def evaluate_loss(objective: Objective, canvases: Sequence[Canvas], *, seed: int) -> dict[str, float]:
    """Each term's mean over the canvases and their weighted sum `loss`; no dropout, fixed noise."""
    objective.eval()
    counts = _count(objective, canvases, ProcessGroup())
    term_means: dict[str, Tensor] = {}
    row_keys = counts.make_row_keys(seed, KeyPurpose.VALIDATION, 0)
    for number, (canvas, keys) in enumerate(zip(canvases, row_keys, strict=True)):
        draws = objective.draw(canvas, keys, make_key(seed, KeyPurpose.VALIDATION, number))
        for name, mean in objective.means(objective(canvas, draws), counts.terms).items():
            term_means[name] = term_means.get(name, 0) + mean
    return {"loss": objective.loss(term_means).item()} | {
        name: total.item() for name, total in term_means.items()
    }
